"""Runs of all parameters on a device that has room for one process: nobody waits in a circle."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.tuning.full_parameters.test_trained import FULL, datum, greedy, tinker
from tests.integration.tuning.test_sdk import in_a_thread
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.trainers import trainers
from tests.support.waiting import until


@pytest.fixture
async def front(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Front]:
    monkeypatch.setattr("windlass.tuning.storage.execution.REST_SECONDS", 0)
    folder = tmp_path / "model"
    make.network().save_pretrained(folder)
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder)},
        "full_parameter_trainers": 2,
        "seats": {"max_residents": 1},
    }
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made
    assert trainers() == []


def sampled_between(url: str, key: str) -> tuple[list[int], list[float]]:
    """Tokens that are sampled between two steps of a run, and the losses of these."""
    service = tinker.ServiceClient(base_url=url, api_key=key, user_metadata=FULL)
    training = service.create_lora_training_client(base_model="toy", seed=1).result()
    losses = [stepped(training)]
    said = greedy(training.save_weights_and_get_sampling_client())
    losses.append(stepped(training))
    service.close("success").result()
    return said, losses


def sampled_last(url: str, key: str) -> list[int]:
    """Tokens of a sampler that came after its run had left its seat, and ends with the session."""
    service = tinker.ServiceClient(base_url=url, api_key=key, user_metadata=FULL)
    training = service.create_lora_training_client(base_model="toy", seed=1).result()
    said = greedy(training.save_weights_and_get_sampling_client())
    service.close("success").result()
    return said


def stepped(training: Any) -> float:
    computed = training.forward_backward([datum()] * 2, "cross_entropy").result()
    training.optim_step(tinker.types.AdamParams(learning_rate=1e-2)).result()
    return float(computed.metrics["loss:sum"])


async def test_a_run_that_rests_leaves_its_seat_to_its_own_sampler(front: Front) -> None:
    async with asyncio.timeout(180):
        said, (before, after) = await in_a_thread(sampled_between, front)
    assert len(said) == 3
    # It goes on from what it was.
    assert after < before


async def test_a_sampler_that_outlived_its_runs_trainer_ends_with_the_session(
    front: Front,
) -> None:
    async with asyncio.timeout(180):
        assert len(await in_a_thread(sampled_last, front)) == 3
    await until(lambda: not trainers())
    await until(lambda: not list((front.app.settings.data_dir / "tuning").glob("*")))
