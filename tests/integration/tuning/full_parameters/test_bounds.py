"""What runs of all parameters may have: refused by the reason and the numbers, or made to wait."""

import asyncio
from typing import Any

import pytest
from tests.integration.tuning.test_log import Client
from tests.support.services.front import Front
from tests.support.waiting import until

FULL = {"windlass.full_parameters": True}
ONE = {"full_parameter_trainers": 1}


async def asked(client: Client, number: int, status: int = 200, **body: Any) -> Any:
    """The answer to a wish for a model."""
    wish = {"session_id": client.session, "model_seq_id": number, "base_model": "toy"}
    return await client.post("create_model", wish | body, status)


async def session(http: Any, **metadata: Any) -> Client:
    client = Client(http)
    body = {"sdk_version": "x", "user_metadata": FULL | metadata}
    client.session = (await client.post("create_session", body))["session_id"]
    return client


@pytest.mark.parametrize("front", [ONE | {"full_parameter_processes": 2}], indirect=True)
async def test_what_is_not_to_be_is_refused_by_its_field(front: Front) -> None:
    async with front.http() as http:
        client = await session(http)
        for body, field in (
            ({"optimizer_config": {"type": "dimuon"}}, "optimizer_config"),
            ({"lora_config": {"train_mlp": False}}, "lora_config"),
            ({"user_metadata": {"windlass.processes": 3}}, "user_metadata"),
            ({"user_metadata": {"windlass.processes": 0}}, "user_metadata"),
            ({"user_metadata": {"windlass.processes": "two"}}, "user_metadata"),
            ({"user_metadata": {"windlass.processes": True}}, "user_metadata"),
            ({"user_metadata": {"windlass.replicas": 1}}, "user_metadata"),
            ({"user_metadata": {"windlass.full_parameters": 1.5}}, "user_metadata"),
            ({"user_metadata": {"windlass.full_parameter": True}}, "user_metadata"),
            (
                {"user_metadata": {"windlass.full_parameters": False, "windlass.processes": 2}},
                "user_metadata",
            ),
        ):
            refused = await asked(client, 0, 400, **body)
            assert refused["param"] == field, (body, refused)
        made = await asked(client, 0, user_metadata={"windlass.processes": "2"})
        run = (await client.result(made))["model_id"]
        info = await client.post("get_info", {"model_id": run})
        assert (info["is_lora"], info["lora_rank"]) == (False, 0)


@pytest.mark.parametrize("front", [ONE], indirect=True)
async def test_samplers_are_as_many_as_may_sample_here(front: Front) -> None:
    async with front.http() as http:
        client = await session(http, **{"windlass.replicas": "2"})
        refused = await asked(client, 0, 400)
        assert refused["param"] == "user_metadata"
        assert "windlass.replicas is 2, and at most 1 sample for one session here" in str(refused)
        adapter = {"windlass.full_parameters": False, "windlass.replicas": "2"}
        refused = await asked(client, 0, 400, user_metadata=adapter)
        assert "windlass.replicas needs windlass.full_parameters" in str(refused)
        for wrong in (0, "two", True, 10_000):
            body = {"sdk_version": "x", "user_metadata": {"windlass.replicas": wrong}}
            answer = await http.post("/api/v1/create_session", json=body)
            assert answer.status_code == 400, answer.text


async def test_nothing_trains_all_parameters_unless_the_operator_says_so(front: Front) -> None:
    async with front.http() as http:
        refused = await asked(await session(http), 0, 409)
        assert refused["code"] == "full_parameters_not_offered"
        # Adapters in the same session are.
        await asked(await session(http), 0, user_metadata={"windlass.full_parameters": False})


@pytest.mark.parametrize(
    "front", [{"full_parameter_trainers": 4, "quotas": {"tuning_full_runs": 1}}], indirect=True
)
async def test_a_project_has_no_more_than_its_quota_in_live_sessions(front: Front) -> None:
    async with front.http() as http:
        first, second = await session(http), await session(http)
        await first.result(await asked(first, 0))
        refused = await asked(second, 0, 403)
        assert (refused["code"], refused["param"]) == ("quota_exceeded", "tuning_full_runs")
        await first.post(f"sessions/{first.session}/finish", {"reason": {"type": "success"}})
        await second.result(await asked(second, 0))


@pytest.mark.parametrize("front", [ONE], indirect=True)
async def test_one_more_waits_until_a_trainer_rests_or_is_given_back(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = "windlass.tuning.storage.execution.REST_SECONDS"
    monkeypatch.setattr(rest, 3600)
    monkeypatch.setattr("windlass.gateway.tinker.sampling.WAIT_MS", 500)
    async with front.http() as http:
        first, second = [await session(http) for _ in range(2)]
        first.run = (await first.result(await asked(first, 0)))["model_id"]
        waiting = await asked(second, 0)
        # Runs of adapters do not wait for it.
        await Client(http).begin()
        # Its client learns why; who computes already is told nothing of the kind.
        why = await until(
            lambda: second.post("retrieve_future", {"request_id": waiting["request_id"]}),
            holds=lambda found: found["queue_state"] == "paused_capacity",
        )
        assert "All 1 trainers" in why["queue_state_reason"]
        gap = await first.step(3)
        told = await first.post("retrieve_future", {"request_id": gap["request_id"]})
        assert (told["queue_state"], "queue_state_reason" in told) == ("active", False)
        opening = asyncio.create_task(second.result(waiting))
        # Longer than a round of whoever would claim it, or let the first one go.
        _done, pending = await asyncio.wait([opening], timeout=5)
        assert pending
        monkeypatch.setattr(rest, -1)
        second.run = (await opening)["model_id"]
        # Each goes on with what it was, whoever had the trainer between.
        for step in (1, 2, 3):
            for client in (first, second):
                metrics = (await client.result(await client.step(step)))["metrics"]
                assert metrics["step:max"] == step


@pytest.mark.parametrize("front", [ONE], indirect=True)
async def test_a_deleted_model_gives_its_trainer_to_who_waits(front: Front) -> None:
    async with front.http() as http:
        first, second = await session(http), await session(http)
        run = (await first.result(await asked(first, 0)))["model_id"]
        waiting = await asked(second, 0)
        await first.post("unload_model", {"model_id": run})
        assert "model_id" in await second.result(waiting)
