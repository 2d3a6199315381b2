"""Loops written with the tinker SDK alone train: two projects at once, and a trainer killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_sdk import in_a_thread
from tests.support.factories import tuning_engines as make
from tests.support.services.filled_tenant import ok
from tests.support.services.front import Front, running_front

tinker: Any = import_module("tinker")
types: Any = tinker.types
PROMPT = [3, 5, 8]
BODY = {
    "data": [
        {
            "model_input": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3, 4]}]},
            "loss_fn_inputs": {
                "target_tokens": {"data": [2, 3, 4, 5], "dtype": "int64", "shape": [4]},
                "weights": {"data": [0.0, 1.0, 1.0, 1.0], "dtype": "float32", "shape": [4]},
            },
        }
    ],
    "loss_fn": "cross_entropy",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
async def front(database_url: str, tmp_path: Path, folder: Path) -> AsyncIterator[Front]:
    tuning = {"trainer": "lora", "model_folders": {"toy": str(folder)}}
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made
    assert trainers() == []


def trainers() -> list[psutil.Process]:
    """The processes that train for this one."""
    found = []
    for one in psutil.Process().children():
        # It may end while it is looked at.
        with suppress(psutil.Error):
            if "windlass_agent.tuning" in one.cmdline():
                found.append(one)
    return found


async def another_project(front: Front) -> str:
    """The key of another organization's project."""
    async with front.http() as http:
        made = await ok(http.post("/v1/organizations", json={"title": "Others"}))
        http.headers["OpenAI-Organization"] = made["id"]
        project = await ok(http.post("/v1/projects", json={"title": "theirs"}))
        body = {"name": "key", "project_id": project["id"], "role": "project_owner"}
        return str((await ok(http.post("/v1/api_keys", json=body)))["value"])


def supervised(url: str, key: str) -> list[float]:
    """Losses of a loop that saves half-way, and goes on in another model from what it saved."""
    service = tinker.ServiceClient(base_url=url, api_key=key)
    training = service.create_lora_training_client(base_model="toy", rank=16, seed=1).result()
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3, 4]),
        loss_fn_inputs={"target_tokens": [2, 3, 4, 5], "weights": [0.0, 1.0, 1.0, 1.0]},
    )
    losses = []
    for step in range(8):
        computed = training.forward_backward([datum] * 3, "cross_entropy")
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-2))
        losses.append(computed.result().metrics["loss:sum"])
        assert stepped.result().metrics["step:max"] == step + 1
        if step == 3:
            path = training.save_state("half").result().path
            training = service.create_training_client_from_state_with_optimizer(path).result()
    service.close("success").result()
    return losses


def reinforced(url: str, key: str) -> list[float]:
    """Mean rewards of a loop that is paid for odd tokens."""
    service = tinker.ServiceClient(base_url=url, api_key=key)
    training = service.create_lora_training_client(
        base_model="toy", rank=4, seed=7, user_metadata={"windlass.exclusive": "true"}
    ).result()
    means = []
    for step in range(10):
        sampler = training.save_weights_and_get_sampling_client()
        sampler = sampler.result() if hasattr(sampler, "result") else sampler
        answer = sampler.sample(
            prompt=types.ModelInput.from_ints(PROMPT),
            num_samples=32,
            sampling_params=types.SamplingParams(max_tokens=6, temperature=1.0, seed=step),
        ).result()
        data, rewards = [], []
        for one in answer.sequences:
            gains = [float(token % 2) for token in one.tokens]
            rewards += gains
            data.append(_taught(list(one.tokens), list(one.logprobs), gains))
        means.append(sum(rewards) / len(rewards))
        computed = training.forward_backward(data, "importance_sampling").result()
        # What was sampled is what is trained, so that the first ratio is one.
        assert computed.metrics["ratio:max"] == pytest.approx(1, abs=1e-3)
        training.optim_step(types.AdamParams(learning_rate=3e-2)).result()
    service.close("success").result()
    return means


def _taught(tokens: list[int], logprobs: list[float], gains: list[float]) -> Any:
    whole, before = [*PROMPT, *tokens], len(PROMPT) - 1
    return types.Datum(
        model_input=types.ModelInput.from_ints(whole[:-1]),
        loss_fn_inputs={
            "target_tokens": whole[1:],
            "logprobs": [0.0] * before + logprobs,
            "advantages": [0.0] * before + [gain - 0.5 for gain in gains],
        },
    )


async def test_two_projects_learn_at_once_on_one_base(front: Front) -> None:
    theirs = await another_project(front)
    losses, rewards = await asyncio.gather(
        in_a_thread(supervised, front), in_a_thread(reinforced, front, theirs)
    )
    assert len(losses) == 8
    assert losses[-1] < 0.5 * losses[0]
    # The model that was made of the saved state begins where that ended.
    assert losses[4] < 0.5 * losses[0]
    assert rewards[0] < 0.8
    assert rewards[-1] == 1.0
    assert len(trainers()) == 1


def scored(url: str, key: str) -> list[float]:
    """Losses of a loop whose loss is its own, computed where the loop is."""
    service = tinker.ServiceClient(base_url=url, api_key=key)
    training = service.create_lora_training_client(base_model="toy", rank=8, seed=1).result()
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3, 4]),
        loss_fn_inputs={"target_tokens": [2, 3, 4, 5]},
    )

    def squared(data: Any, logprobs: Any) -> Any:
        loss = sum((one**2).sum() for one in logprobs)
        return loss, {"squared": float(loss)}

    losses = []
    for _ in range(5):
        found = training.forward_backward_custom([datum] * 2, squared).result()
        losses.append(found.metrics["squared"])
        training.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    service.close("success").result()
    return losses


async def test_a_loss_of_the_loops_own_is_learned_by(front: Front) -> None:
    losses = await in_a_thread(scored, front)
    assert losses[-1] < 0.5 * losses[0]


async def test_a_killed_trainer_costs_time_and_no_bit(front: Front) -> None:
    async with front.http() as http:
        client, undisturbed = [await begun(http) for _ in range(2)]
        expected = [await learned(undisturbed, seq_id) for seq_id in (1, 3, 5, 7)]
        assert await learned(client, 1) == expected[0]
        killed()
        # What is not saved is computed again.
        assert await learned(client, 3) == expected[1]
        body = {"model_id": client.run, "path": "s", "seq_id": 5}
        assert "path" in await client.result(await client.post("save_weights", body))
        killed()
        assert await learned(client, 6) == expected[2]
        computed, stepped = await asked(client, 8)
        killed()
        assert (await client.result(computed))["metrics"]["loss:sum"] == expected[3]
        assert (await client.result(stepped))["metrics"]["step:max"] == 4.0


async def begun(http: httpx.AsyncClient) -> Client:
    """A client of a run that begins as others of it do."""
    client = Client(http)
    await client.begin()
    body = {
        "session_id": client.session, "model_seq_id": 7, "base_model": "toy",
        "lora_config": {"rank": 8, "seed": 1}, "user_metadata": {"windlass.exclusive": True},
    }  # fmt: skip
    client.run = (await client.result(await client.post("create_model", body)))["model_id"]
    return client


async def asked(client: Client, seq_id: int) -> tuple[Any, Any]:
    """The futures of one more batch and step."""
    body = {"model_id": client.run, "seq_id": seq_id, "forward_backward_input": BODY}
    computed = await client.post("forward_backward", body)
    return computed, await client.step(seq_id + 1, learning_rate=1e-2)


async def learned(client: Client, seq_id: int) -> float:
    """The loss of one more batch, once its step is done."""
    computed, stepped = await asked(client, seq_id)
    assert "metrics" in (found := await client.result(stepped)), found
    return float((await client.result(computed))["metrics"]["loss:sum"])


def killed() -> None:
    """Ends the trainer as nothing can be caught."""
    [trainer] = trainers()
    os.kill(trainer.pid, signal.SIGKILL)
