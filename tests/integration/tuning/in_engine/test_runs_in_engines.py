"""Runs that train a served model's engine: the platform's own services, and an agent of the test.

Loops are the tinker SDK's where it can ask for what is tested.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.integration.models.test_models import FILES
from tests.integration.tuning.in_engine.taught_engine import TaughtEngine, asked, taught
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_sdk import in_a_thread
from tests.support.services.filled_tenant import ok
from tests.support.services.front import MODULES, Front, running_front
from tests.support.waiting import until

from windlass.client import Windlass
from windlass.inference.trainings.holds import held_engines
from windlass.inference.trainings.run_store import KEPT_SECONDS
from windlass.inference.trainings.store import trainings

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
    """A front and its one machine."""

    front: Front
    engine: TaughtEngine


@asynccontextmanager
async def staged(database_url: str, root: Path, **tuning: Any) -> AsyncIterator[Stage]:
    """Runs a front with the engines' service, and a machine whose engines learn."""
    (root / "run").mkdir(exist_ok=True)
    tuning |= {"trainer": "null", "base_models": ["toy"]}
    modules = (*MODULES[:-1], "inference", MODULES[-1])
    async with (
        running_front(database_url, root / "data", modules, tuning=tuning) as front,
        taught(front.app, root / "run") as engine,
    ):
        yield Stage(front, engine)


async def enabled(stage: Stage, folder: Path) -> None:
    """Imports the model, and lets its engine be trained."""
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)

    def imported() -> None:
        with Windlass(stage.front.url, stage.front.owner_key) as client:
            client.models.import_folder(MODEL, folder)

    await asyncio.to_thread(imported)
    async with stage.front.http() as http:
        await ok(http.put(f"/v1/servings/{MODEL}", json=serving()))


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(database_url, tmp_path) as made:
        await enabled(made, tmp_path / "model")
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
    sampler = training.save_weights_and_get_sampling_client().result()
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
            answer = await http.get("/v1/usage", params={"start_time": int(time.time()) - 86_400})
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
        body = {"name": "sibling", "project_id": made["id"], "role": "project_owner"}
        sibling = (await ok(http.post("/v1/api_keys", json=body)))["value"]
        body = {"name": "narrow", "scopes": ["tuning.write", "tuning.read", "tuning.invoke"]}
        narrow = (await ok(http.post("/v1/api_keys", json=body)))["value"]
        mine = await begun(http)
    async with stage.front.http(sibling) as http:
        client = await session(http)
        others, never = [await create(client, 400, base_model=one) for one in (MODEL, "never")]
        assert others["error"].replace(MODEL, "X") == never["error"].replace("never", "X")
        assert others["code"] == never["code"] == "unknown_base_model"
        # Nor is it there to train as an adapter.
        plain = await create(client, 400, user_metadata={"windlass.in_engine": False})
        assert plain["code"] == "unknown_base_model"
    async with stage.front.http(narrow) as http:
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
        for training in ("", "shadow"):
            await ok(http.put(f"/v1/servings/{MODEL}", json=serving(training)))
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


async def test_an_engine_that_says_it_is_done_and_has_put_nothing_is_believed_nothing(
    stage: Stage,
) -> None:
    async with stage.front.http() as http:
        client = await begun(http)
        stage.engine.lies = True
        found = await client.result(await forward(client, 1))
        assert found["category"] == "server"
        assert "another number of outputs" in found["error"]
        stage.engine.lies = False
        assert "metrics" in await client.result(await forward(client, 2))


async def test_what_waits_for_an_engine_to_start_is_computed_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.tuning.in_engine.trainer.WAIT_SECONDS", 0.2)
    stage.engine.waits = True
    async with stage.front.http() as http:
        client = await begun(http)
        waiting = [await forward(client, 1), await forward(client, 2), await client.step(3)]
        found = asyncio.gather(*(client.result(one) for one in waiting))
        # Longer than several of its looks.
        _done, pending = await asyncio.wait([found], timeout=3)
        assert pending
        stage.engine.waits = False
        *_, step = await found
        assert step["metrics"]["step:max"] == 1.0
        *_, body = stage.engine.bodies
        assert (len(stage.engine.bodies), len(body["datums"])) == (3, 2)


async def test_a_pass_is_asked_of_the_engine_once(stage: Stage) -> None:
    """A repeat of an operation, and a run that is taken up again, ask for nothing anew."""
    async with stage.front.http() as http:
        client = await begun(http)
        first, again = await forward(client, 1), await forward(client, 1)
        assert first == again
        await client.result(first)
        await asked(stage.engine, 0)
        assert len(stage.engine.bodies) == 1


async def test_a_run_that_was_silent_goes_on_where_it_was(
    database_url: str, tmp_path: Path
) -> None:
    """The datums of passes are in the log, and what the engine had done is asked for by its key."""
    async with staged(database_url, tmp_path, session_seconds=2) as stage:
        await enabled(stage, tmp_path / "model")
        async with stage.front.http() as http:
            client = await begun(http)
            await client.result(await forward(client, 1))
            await client.result(await client.step(2))
            await client.result(await forward(client, 3))
            chain, asked_for = stage.engine.chain, len(stage.engine.bodies)
            # Silent, it gives its engine back.
            held = sa.select(sa.func.count()).select_from(held_engines)

            async def is_free() -> bool:
                async with stage.front.app.database.autocommit() as connection:
                    return (await connection.execute(held)).scalar_one() == 0

            await until(is_free)
            await client.post("session_heartbeat", {"session_id": client.session})
            assert (await client.result(await client.step(4)))["metrics"]["step:max"] == 2.0
        # The pass was not computed again, and its datum is in the step.
        (body,) = stage.engine.bodies[asked_for:]
        assert (body["one_step"], len(body["datums"]), body["continues"]) == (True, 1, chain)


async def test_what_old_runs_computed_goes_once_nobody_can_take_them_up(stage: Stage) -> None:
    """Not the step that no checkpoint has, by which the engine is saved on its own."""
    database = stage.front.app.database

    async def computed(run_id: str) -> int:
        mine = sa.select(sa.func.count()).where(trainings.c.run_id == run_id)
        async with database.autocommit() as connection:
            return int((await connection.execute(mine)).scalar_one())

    async def finished(client: Client) -> None:
        await client.post(f"sessions/{client.session}/finish", {"reason": {"type": "success"}})
        mine = sa.exists().where(held_engines.c.run_id == client.run)
        await until(lambda: database.ask(~mine))

    async with stage.front.http() as http:
        old = await begun(http)
        await old.result(await forward(old, 1))
        await old.result(await old.step(2))
        await finished(old)
        async with database.begin() as connection:
            ago = {"finished_at": trainings.c.finished_at - 2 * KEPT_SECONDS}
            await connection.execute(trainings.update().values(ago))
        young = await begun(http)
        await young.result(await forward(young, 1))
        assert await computed(old.run) == 2
        await finished(young)

        async def rest() -> bool:
            return await computed(old.run) == 1

        await until(rest)
        assert await computed(young.run) == 1
