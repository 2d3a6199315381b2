"""Loops that train all parameters: a trainer and a sampler of their own, and a trainer killed."""

import asyncio
import io
import os
import signal
import tarfile
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_sdk import in_a_thread
from tests.integration.tuning.test_trained import asked, learned
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.trainers import trainers
from tests.support.waiting import until

from windlass.core.app import runtime_dir

tinker: Any = import_module("tinker")
types: Any = tinker.types
FULL = {"windlass.full_parameters": "true"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
async def front(database_url: str, tmp_path: Path, folder: Path) -> AsyncIterator[Front]:
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder)},
        "full_parameter_trainers": 2,
    }
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made
    assert trainers() == []


async def begun(http: httpx.AsyncClient) -> Client:
    """A client of a run that begins as others of it do."""
    client = Client(http)
    body = {"sdk_version": "x", "user_metadata": FULL}
    client.session = (await client.post("create_session", body))["session_id"]
    wish = {"session_id": client.session, "model_seq_id": 0, "base_model": "toy"}
    client.run = (await client.result(await client.post("create_model", wish)))["model_id"]
    return client


def datum() -> Any:
    return types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3, 4]),
        loss_fn_inputs={"target_tokens": [2, 3, 4, 5], "weights": [0.0, 1.0, 1.0, 1.0]},
    )


def supervised(url: str, key: str) -> tuple[list[float], dict[str, Any], list[list[int]]]:
    """Losses of a loop that goes on from what it saved, what it is, and tokens that it sampled."""
    service = tinker.ServiceClient(base_url=url, api_key=key, user_metadata=FULL)
    training = service.create_lora_training_client(base_model="toy", seed=1).result()
    info = training.get_info().model_dump()
    before = training.save_weights_and_get_sampling_client()
    losses, said = [], [greedy(before)]
    for step in range(6):
        computed = training.forward_backward([datum()] * 2, "cross_entropy")
        training.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        losses.append(computed.result().metrics["loss:sum"])
        if step == 2:
            path = training.save_state("half").result().path
            training = service.create_training_client_from_state_with_optimizer(path).result()
    after = training.save_weights_and_get_sampling_client()
    said += [greedy(after), greedy(before)]
    service.close("success").result()
    return losses, info, said


def greedy(sampler: Any) -> list[int]:
    sampler = sampler.result() if hasattr(sampler, "result") else sampler
    params = types.SamplingParams(max_tokens=3, temperature=0.0)
    answer = sampler.sample(types.ModelInput.from_ints([1, 2]), 1, params).result()
    return list(answer.sequences[0].tokens)


async def test_a_loop_trains_every_parameter(front: Front) -> None:
    losses, info, (before, after, pinned) = await in_a_thread(supervised, front)
    assert losses[-1] < 0.5 * losses[0]
    # The model that was made of the saved state begins where that ended.
    assert losses[3] < losses[2]
    assert info["is_lora"] is False
    assert after[0] == 3
    assert before == pinned != after
    await nothing_is_left(front)


async def test_a_killed_trainer_costs_time_and_no_bit(front: Front) -> None:
    async with front.http() as http:
        client, undisturbed = [await begun(http) for _ in range(2)]
        expected = [await learned(undisturbed, seq_id) for seq_id in (1, 3, 5, 7)]
        assert await learned(client, 1) == expected[0]
        killed = {one.pid for one in trainers()}
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        # What is not saved is computed again, in processes of their own.
        assert [await learned(client, seq_id) for seq_id in (3, 5)] == expected[1:3]
        computed, stepped = await asked(client, 7)
        assert (await client.result(computed))["metrics"]["loss:sum"] == expected[3]
        assert (await client.result(stepped))["metrics"]["step:max"] == 4.0
        weights = []
        for one in (client, undisturbed):
            await one.result(await asked_to_save(one))
            weights.append(await weights_of(one))
        assert weights[0] == weights[1]
        assert not killed & {one.pid for one in trainers()}
        assert len(trainers()) == 2
        # Deleted, without a word of their session.
        for one in (client, undisturbed):
            await one.post("unload_model", {"model_id": one.run})
        await nothing_is_left(front)


async def asked_to_save(client: Client) -> Any:
    body = {"model_id": client.run, "path": "end", "seq_id": 9}
    return await client.post("save_weights_for_sampler", body)


async def weights_of(client: Client) -> bytes:
    """The weights that a sampler's checkpoint has, by what its archive has of them."""
    path = f"training_runs/{client.run}/checkpoints/sampler_weights/end"
    async with asyncio.timeout(60):
        answer = await client.http.get(f"/api/v1/{path}/archive", follow_redirects=True)
    answer.raise_for_status()
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        [name] = [one for one in archive.getnames() if one.endswith(".safetensors")]
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


async def nothing_is_left(front: Front) -> None:
    """No process, no socket, and no folder of what was read or written."""
    data = front.app.settings.data_dir
    await until(lambda: not trainers())
    await until(lambda: not list(runtime_dir(data).glob("t-*")))
    await until(lambda: not list((data / "tuning").glob("*")))
