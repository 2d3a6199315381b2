"""Runs that train a served model's engine: the platform's own services, and an agent of the test.

Loops are the tinker SDK's where it can ask for what is tested.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.models.test_models import FILES
from tests.integration.tuning.in_engine.taught_engine import TaughtEngine, asked, taught
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_sdk import in_a_thread
from tests.support.services.filled_tenant import ok
from tests.support.services.front import MODULES, Front, running_front
from tests.support.waiting import until

from windlass.client import Windlass

tinker: Any = import_module("tinker")
types: Any = tinker.types
IN_ENGINE = {"windlass.in_engine": True}
MODEL = "mine"
DATUM = {
    "model_input": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
    "loss_fn_inputs": {
        "target_tokens": {"dtype": "int64", "data": [2, 3, 4]},
        "weights": {"dtype": "float32", "data": [0.0, 1.0, 1.0]},
    },
}


@dataclass
class Stage:
    """A front, its one machine, and a folder of a model."""

    front: Front
    engine: TaughtEngine
    folder: Path

    async def import_model(self, name: str, key: str = "") -> None:
        def imported() -> None:
            with Windlass(self.front.url, key or self.front.owner_key) as client:
                client.models.import_folder(name, self.folder)

        await asyncio.to_thread(imported)


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    model, run = tmp_path / "model", tmp_path / "run"
    for folder in (model, run):
        folder.mkdir()
    for name, content in FILES.items():
        (model / name).write_bytes(content)
    tuning = {"trainer": "null", "base_models": ["toy"]}
    modules = (*MODULES[:-1], "inference", MODULES[-1])
    async with (
        running_front(database_url, tmp_path / "data", modules, tuning=tuning) as front,
        taught(front.app, run) as engine,
    ):
        made = Stage(front, engine, model)
        await made.import_model(MODEL)
        async with front.http() as http:
            await ok(http.put(f"/v1/servings/{MODEL}", json=serving()))
        yield made


def serving(training: str = "hogwild") -> dict[str, Any]:
    return {"engine": "vllm", "training": training}


async def session(http: httpx.AsyncClient, **metadata: Any) -> Client:
    client = Client(http)
    body = {"sdk_version": "x", "user_metadata": IN_ENGINE | metadata}
    client.session = (await client.post("create_session", body))["session_id"]
    return client


async def create(client: Client, status: int = 200, **words: Any) -> Any:
    body = {"session_id": client.session, "model_seq_id": 0, "base_model": MODEL}
    return await client.post("create_model", body | words, status)


async def begun(http: httpx.AsyncClient) -> Client:
    client = await session(http)
    client.run = (await client.result(await create(client)))["model_id"]
    return client


async def forward(client: Client, seq_id: int, loss: str = "cross_entropy", **words: Any) -> Any:
    given = {"data": [DATUM], "loss_fn": loss} | words
    body = {"model_id": client.run, "seq_id": seq_id, "forward_backward_input": given}
    return await client.post("forward_backward", body)


def loop(url: str, key: str) -> dict[str, Any]:
    """Trains and samples as any loop of reinforcement does."""
    service = tinker.ServiceClient(
        base_url=url, api_key=key, user_metadata={"windlass.in_engine": "true"}
    )
    training = service.create_lora_training_client(base_model=MODEL).result()
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={"target_tokens": [2, 3, 4], "weights": [0.0, 1.0, 1.0]},
    )
    found: dict[str, Any] = {"logprobs": [], "steps": [], "sampled": []}
    sampler = training.save_weights_and_get_sampling_client()
    for _ in range(3):
        computed = [training.forward_backward([datum] * 2, "cross_entropy") for _ in range(2)]
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-3))
        first, second = [one.result() for one in computed]
        assert first.metrics["loss:sum"] == 4.0
        found["logprobs"].append(second.loss_fn_outputs[1]["logprobs"].data)
        found["steps"].append(stepped.result().metrics["step:max"])
        answer = sampler.sample(
            prompt=types.ModelInput.from_ints([7, 8]),
            num_samples=10,
            sampling_params=types.SamplingParams(max_tokens=2, stop=[9], seed=3),
        ).result()
        found["sampled"].append([list(one.tokens) for one in answer.sequences])
    found["info"] = training.get_info()
    for call in (training.save_state, training.save_weights_for_sampler):
        with pytest.raises(tinker.RequestFailedError, match="no checkpoints of its own"):
            call("end").result()
    service.close("success").result()
    return found


async def test_a_loop_trains_and_samples_the_engine_itself(stage: Stage) -> None:
    found = await in_a_thread(loop, stage.front)
    # Each pass saw the steps before it, and so did each sample.
    assert found["logprobs"] == [[0.0] * 3, [-1.0] * 3, [-2.0] * 3]
    assert found["steps"] == [1.0, 2.0, 3.0]
    assert found["sampled"] == [[[one] * 2] * 10 for one in (1, 2, 3)]
    assert (found["info"].is_lora, found["info"].model_name) == (False, MODEL)
    bodies = stage.engine.bodies
    assert [bool(one.get("one_step")) for one in bodies] == [False, False, True] * 3
    step = bodies[2]
    # All datums of both passes are one step, with the SDK's numbers.
    assert (len(step["datums"]), step["learning_rate"]) == (4, 1e-3)
    assert step["adam"]["beta2"] == 0.95
    assert {one["n"] for one in stage.engine.completions} == {8, 2}
    assert stage.engine.completions[0]["stop_token_ids"] == [9]


async def test_what_was_used_is_counted_once(stage: Stage) -> None:
    async with stage.front.http() as http:
        client = await begun(http)
        for at in (1, 3):
            await client.result(await forward(client, at))
            await client.result(await client.step(at + 1))

        async def counted() -> int:
            answer = await http.get("/v1/usage", params={"start_time": 1})
            results = [one for day in answer.json()["data"] for one in day["results"]]
            return sum(one["input_tokens"] for one in results if one["kind"] == "training")

        await until(counted, holds=lambda found: found >= 6)
        assert await counted() == 6
        # What a run computes is in its log, and not among the project's trainings.
        assert (await ok(http.get("/v1/engines/trainings")))["data"] == []


async def test_an_engine_is_one_run_s(stage: Stage) -> None:
    sample = {"context_ids": [1], "continuation_ids": [2]}
    async with stage.front.http() as http:
        first = await begun(http)
        refused = await create(await session(http), 409)
        assert (refused["code"], refused["param"]) == ("engine_held", "base_model")
        answer = await http.post(f"/v1/engines/{MODEL}/train", json={"samples": [sample]})
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "engine_held"
        await first.post(f"sessions/{first.session}/finish", {"reason": {"type": "success"}})

        async def free() -> bool:
            again = await session(http)
            body = {"session_id": again.session, "model_seq_id": 0, "base_model": MODEL}
            made = await http.post("/api/v1/create_model", json=body)
            return made.status_code == 200

        await until(free)


async def test_only_a_project_s_own_engine_is_trained(stage: Stage) -> None:
    """Another's model is one that does not exist, by the same words."""
    async with stage.front.http() as http:
        made = await ok(http.post("/v1/projects", json={"title": "sibling"}))
        keys = {}
        for role, where in (("project_owner", made["id"]), ("project_viewer", "")):
            body = {"name": role, "project_id": where, "role": role} if where else None
            if body:
                keys[role] = (await ok(http.post("/v1/api_keys", json=body)))["value"]
        narrow = {"name": "narrow", "scopes": ["tuning.write", "tuning.read", "tuning.invoke"]}
        keys["narrow"] = (await ok(http.post("/v1/api_keys", json=narrow)))["value"]
        mine = await begun(http)
    async with stage.front.http(keys["project_owner"]) as http:
        client = await session(http)
        others, never = [await create(client, 400, base_model=one) for one in (MODEL, "never")]
        assert others["error"].replace(MODEL, "X") == never["error"].replace("never", "X")
        assert others["code"] == never["code"] == "unknown_base_model"
        # Nor is it there to train as an adapter.
        plain = await create(client, 400, user_metadata={"windlass.in_engine": False})
        assert plain["code"] == "unknown_base_model"
    async with stage.front.http(keys["narrow"]) as http:
        client = await session(http)
        assert "engines.train" in (await create(client, 403))["error"]
        # Another's run of the same project neither.
        client.run = mine.run
        assert "engines.train" in (await client.step(1, 403))["error"]


async def test_what_a_run_in_an_engine_has_not_is_refused(stage: Stage) -> None:
    async with stage.front.http() as http:
        client = await session(http)
        for words, field in (
            ({"user_metadata": {"windlass.full_parameters": True}}, "user_metadata"),
            ({"user_metadata": {"windlass.exclusive": True}}, "user_metadata"),
            ({"user_metadata": {"windlass.cluster": "east"}}, "user_metadata"),
            ({"user_metadata": {"windlass.in_engine": "yes"}}, "user_metadata"),
            ({"optimizer_config": {"type": "dimuon"}}, "optimizer_config"),
            ({"lora_config": {"train_mlp": False}}, "lora_config"),
        ):
            assert (await create(client, 400, **words))["param"] == field, words
        for training, name in (("none", MODEL), ("shadow", MODEL)):
            await ok(http.put(f"/v1/servings/{name}", json=serving(training)))
            refused = await create(client, 409)
            assert (refused["code"], refused["param"]) == ("training_not_enabled", "base_model")
        await ok(http.put(f"/v1/servings/{MODEL}", json=serving()))
        client.run = (await client.result(await create(client)))["model_id"]
        # Nothing to step on, and what an engine has no loss for.
        for number, asked_for in enumerate((
            client.step(1),
            forward(client, 2, "boom"),
            forward(client, 3, "cross_entropy", loss_fn_config={"beta": 1.0}),
        ), 1):  # fmt: skip
            found = await client.result(await asked_for)
            assert found["category"] == "user", (number, found)
        await client.result(await forward(client, 4))
        other = await client.result(await forward(client, 5, "importance_sampling"))
        assert "one loss" in other["error"]
        found = await client.result(await client.step(6, beta1=1.0))
        assert "beta1" in found["error"]
        # What was refused left the datums where they were.
        assert (await client.result(await client.step(7)))["metrics"]["step:max"] == 1.0
        replay = await http.post(f"/v1/tuning/runs/{client.run}/replay", json={})
        assert replay.status_code in (404, 409)


async def test_numbers_are_an_order_however_they_arrive(stage: Stage) -> None:
    async with stage.front.http() as http:
        client = await begun(http)
        late = [await client.step(2), await forward(client, 3), await client.step(4)]
        first = await forward(client, 1)
        assert "loss:sum" in (await client.result(first))["metrics"]
        steps = [(await client.result(late[at]))["metrics"]["step:max"] for at in (0, 2)]
        assert steps == [1.0, 2.0]


async def test_an_engine_that_began_anew_ends_the_run_with_its_reason(stage: Stage) -> None:
    async with stage.front.http() as http:
        client = await begun(http)
        await client.result(await forward(client, 1))
        # Between the pass and the step.
        stage.engine.forget()
        for number in (2, 3):
            lost = await client.result(await client.step(number))
            assert (lost["category"], "state_lost" in lost["error"]) == ("server", True)
        # Its engine is free for another one.
        again = await session(http)
        again.run = (await again.result(await create(again)))["model_id"]
        assert "metrics" in await again.result(await forward(again, 1))
        assert (await again.result(await again.step(2)))["metrics"]["step:max"] == 1.0


async def test_an_engine_that_fails_ends_the_run_with_its_reason(stage: Stage) -> None:
    async with stage.front.http() as http:
        client = await begun(http)
        await client.result(await forward(client, 1))
        stage.engine.instead = lambda body: "EngineEnded"
        lost = await client.result(await client.step(2))
        assert "EngineEnded" in lost["error"]
        # What the user did wrong does not.
        stage.engine.instead = lambda body: "invalid_request"
        other = await session(http)
        other.run = (await other.result(await create(other)))["model_id"]
        assert (await other.result(await forward(other, 1)))["category"] == "user"
        stage.engine.instead = lambda body: ""
        assert "metrics" in await other.result(await forward(other, 2))


async def test_a_deleted_serving_ends_the_run_with_its_reason(stage: Stage) -> None:
    async with stage.front.http() as http:
        client = await begun(http)
        await client.result(await forward(client, 1))
        await client.result(await client.step(2))
        await ok(http.delete(f"/v1/servings/{MODEL}"))
        lost = await client.result(await forward(client, 3))
        assert "may not be trained" in lost["error"]


async def test_outputs_of_another_size_are_no_result(stage: Stage) -> None:
    """The engine is hostile: it says that it is done, and has put nothing."""
    async with stage.front.http() as http:
        client = await begun(http)
        await client.result(await forward(client, 1))
        engine, lie = stage.engine, {"forward_only": False, "one_step": False}
        original = engine._compute

        async def lying(workload: Any) -> None:
            await engine.agent.report(workload, 5)

        engine._compute = lying  # type: ignore[method-assign]
        assert lie
        found = await client.result(await forward(client, 2))
        assert found["category"] == "server"
        engine._compute = original  # type: ignore[method-assign]
        assert "metrics" in await client.result(await forward(client, 3))


async def test_a_pass_is_asked_of_the_engine_once(stage: Stage) -> None:
    """A repeat of an operation, and a run that is taken up again, ask for nothing anew."""
    async with stage.front.http() as http:
        client = await begun(http)
        first, again = await forward(client, 1), await forward(client, 1)
        assert first == again
        await client.result(first)
        await asked(stage.engine, 0)
        assert len(stage.engine.bodies) == 1
