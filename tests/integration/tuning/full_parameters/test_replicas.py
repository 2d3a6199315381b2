"""Sessions that sample with several processes of their own."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.tuning.full_parameters.test_trained import FULL, datum, tinker, types
from tests.integration.tuning.test_sdk import in_a_thread
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.trainers import trainers
from tests.support.waiting import until, wait_until

PROMPTS = 8


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    folder = tmp_path / "model"
    make.network().save_pretrained(folder)
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder)},
        "full_parameter_trainers": 2,
    }
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made
    assert trainers() == []


def sampled(url: str, key: str) -> list[list[list[int]]]:
    """What many prompts at once are continued with, before and after there is a second sampler."""
    metadata = FULL | {"windlass.replicas": "2"}
    service = tinker.ServiceClient(base_url=url, api_key=key, user_metadata=metadata)
    training = service.create_lora_training_client(base_model="toy", seed=1).result()
    training.forward_backward([datum()], "cross_entropy").result()
    training.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    sampler = training.save_weights_and_get_sampling_client()
    sampler = sampler.result() if hasattr(sampler, "result") else sampler
    first = continued(sampler)
    # A trainer, and two that sample.
    wait_until(lambda: len(trainers()) == 3, "a second sampler was started")
    found = [first, continued(sampler)]
    service.close("success").result()
    return found


def continued(sampler: Any) -> list[list[int]]:
    prompt = types.ModelInput.from_ints([1, 2])
    asked = [
        sampler.sample(prompt, 1, types.SamplingParams(max_tokens=20, temperature=1.0, seed=seed))
        for seed in range(PROMPTS)
    ]
    return [list(one.result().sequences[0].tokens) for one in asked]


async def test_a_session_has_as_many_samplers_as_it_asks_for(front: Front) -> None:
    alone, spread = await in_a_thread(sampled, front)
    # A seed says what comes, whichever sampler continues the prompt.
    assert alone == spread
    assert len({tuple(one) for one in alone}) > 1
    await until(lambda: not trainers())
