"""What a run loaded is loaded again, and nothing else that has its path by now."""

from typing import Any

from tests.integration.tuning.replaying.test_proofs import fork, proof, saved, steps
from tests.integration.tuning.test_log import Client
from tests.support.services.front import Front


async def load(client: Client, seq_id: int, path: str, **more: str) -> Any:
    body = {"model_id": client.run, "path": path, "optimizer": True, "seq_id": seq_id} | more
    return await client.result(await client.post("load_weights", body))


async def run_of(client: Client, number: int, path: str, **more: str) -> Client:
    """Another run of the session, from a checkpoint."""
    body = {
        "session_id": client.session, "model_seq_id": number, "path": path, "optimizer": True,
    } | more  # fmt: skip
    made = await client.post("load_weights", body)
    await client.result(made)
    return Client(client.http, client.session, made["model_id"])


async def test_what_was_not_loaded_is_not_loaded_again(front: Front) -> None:
    async with front.http() as http:
        client, other = Client(http), Client(http)
        for one in (client, other):
            await one.begin()
        foreign = {
            "session_id": client.session, "model_seq_id": 1, "base_model": "toy",
            "lora_config": {"rank": 4},
        }  # fmt: skip
        other.run = (await other.result(await other.post("create_model", foreign)))["model_id"]
        await steps(client, 1, 2)
        assert "rank" in (await load(client, 3, await saved(other, 1, "s")))["error"]
        later = f"tinker://{client.run}/weights/later"
        assert "No such checkpoint" in (await load(client, 4, later))["error"]
        await steps(client, 5, 6)
        # What has the path now is not what had none then.
        assert await saved(client, 7, "later") == later
        found = await proof(client)
        assert (found["agrees"], found["gaps"], found["not_compared"]) == (True, [], 2)
        assert (found["results_compared"], found["weights_compared"]) == (4, 1)
        branch = await fork(client, "6")
        assert (await proof(Client(http, run=branch["training_run_id"]), "", 200))["gaps"] == []


async def test_a_name_that_another_state_has_now_is_not_what_was_loaded(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 1)
        path = await saved(client, 2, "latest")
        await load(client, 3, path)
        third = await run_of(client, 3, path)
        await steps(third, 1, 1)
        await steps(client, 4, 5)
        again = {"model_id": client.run, "path": "latest", "seq_id": 6, "overwrite": True}
        await client.result(await client.post("save_weights", again))
        for one, compared in ((client, 2), (third, 1)):
            found = await proof(one)
            assert (found["differing"], len(found["gaps"]), found["agrees"]) == (0, 1, True)
            assert found["results_compared"] + found["weights_compared"] == compared


async def test_a_run_whose_beginning_is_gone_is_proved_from_its_first_state(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 1)
        third = await run_of(client, 3, await saved(client, 2, "s"))
        await steps(third, 1, 2)
        path = await saved(third, 3, "own")
        await steps(third, 4, 5)
        await http.delete(f"/api/v1/training_runs/{client.run}/checkpoints/weights/s")
        found = await proof(third)
        assert (found["agrees"], found["began_at"]) == (True, path)
        assert (found["first_place"], found["results_compared"]) == (4, 2)
        assert found["gaps"] == ["What the run began with is no longer there."]
