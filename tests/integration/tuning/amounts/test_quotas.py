"""What a project may have of tuning: refused with what the SDK waits for, or stops on."""

from itertools import count
from typing import Any

import pytest
from tests.integration.tuning.replaying.test_proofs import fork, saved, steps
from tests.integration.tuning.test_log import ADAM, Client, loss, send
from tests.integration.tuning.test_trained import another_project
from tests.support.services.filled_tenant import ok
from tests.support.services.front import Front
from tests.support.waiting import until


async def project_of(front: Front) -> str:
    async with front.http() as http:
        return str((await http.get("/v1/me")).json()["project"]["id"])


@pytest.mark.parametrize("front", [{"quotas": {"tuning_runs": 2}}], indirect=True)
async def test_open_models_are_bounded_and_another_projects_are_not(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        body = {"session_id": client.session, "base_model": "toy"}
        await client.result(await client.post("create_model", body | {"model_seq_id": 1}))
        refused = await client.post("create_model", body | {"model_seq_id": 2}, 403)
        assert (refused["code"], refused["param"]) == ("quota_exceeded", "tuning_runs")
        # A repeat of one that is there is no more.
        await client.result(await client.post("create_model", body | {"model_seq_id": 1}))
        async with front.http(await another_project(front)) as other:
            await Client(other).begin()
        await client.post("unload_model", {"model_id": client.run})
        await client.result(await client.post("create_model", body | {"model_seq_id": 2}))


async def test_an_operator_bounds_operations_of_a_project(front: Front) -> None:
    project = await project_of(front)
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        for name in ("tuning_operations", "tuning_body_bytes"):
            await ok(http.put(f"/v1/quotas/{name}", json={"project_id": project, "bound": 1}))
        # Nothing is known of it yet.
        waiting = await client.step(9)
        numbers = count(10)

        async def asked() -> Any:
            body = {"model_id": client.run, "seq_id": next(numbers), "adam_params": ADAM}
            return (await http.post("/api/v1/optim_step", json=body)).json().get("param")

        await until(asked, holds=lambda param: param == "tuning_body_bytes")
        await ok(http.put("/v1/quotas/tuning_body_bytes", json={"project_id": project, "bound": 0}))
        await until(asked, holds=lambda param: param == "tuning_operations")
        assert await client.step(9) == waiting
        named = (await http.get("/v1/quotas", params={"project_id": project})).json()["data"]
        assert {one["name"]: one["bound"] for one in named}["tuning_operations"] == 1


@pytest.mark.parametrize("front", [{"quotas": {"tuning_body_bytes": 3000}}], indirect=True)
async def test_bodies_are_bounded_by_their_bytes(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        tokens = [1] * 200
        first = await send(client, loss(client, 1, *tokens).SerializeToString())
        assert first.status_code == 200
        answers = [
            await send(client, loss(client, number, *tokens).SerializeToString())
            for number in range(2, 6)
        ]
        assert [one.status_code for one in answers] == [200, 200, 403, 403]
        refused = answers[-1].json()
        assert (refused["code"], refused["param"]) == ("quota_exceeded", "tuning_body_bytes")
        assert "retry-after" not in answers[-1].headers
        # What is there is answered still.
        again = await send(client, loss(client, 1, *tokens).SerializeToString())
        assert again.json() == first.json()


@pytest.mark.parametrize(
    "front",
    [{"quotas": {"tuning_checkpoints": 1}}, {"quotas": {"tuning_checkpoint_bytes": 1}}],
    indirect=True,
)
async def test_checkpoints_are_bounded_and_the_run_goes_on(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 1)
        path = await saved(client, 2, "one")
        body = {"model_id": client.run, "path": "two", "seq_id": 3}
        refused = await client.result(await client.post("save_weights", body))
        assert (refused["category"], "its quota is 1" in refused["error"]) == ("user", True)
        assert (await fork(client, "1", 403))["code"] == "quota_exceeded"
        copied = await client.post("copy_weights", {"source_path": path}, 403)
        assert copied["code"] == "quota_exceeded"
        assert await steps(client, 4, 4) == [2.0]
        run, _, checkpoint = path.removeprefix("tinker://").partition("/")
        await http.delete(f"/api/v1/training_runs/{run}/checkpoints/{checkpoint}")
        await saved(client, 5, "three")
