"""The built-in engine gives its memory back, ends what is open first, and comes back as it was."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from openai import AsyncOpenAI, NotFoundError
from tests.support.processes.engine import RunningEngine
from tests.support.waiting import until

from windlass_agent.engines.builtin.generation.adapter_weights import AdapterWeights
from windlass_agent.engines.builtin.generation.loading import load_model
from windlass_agent.engines.builtin.generation.sleeping import DroppableWeights
from windlass_agent.engines.port import EngineControl, EngineError

pytestmark = pytest.mark.torch
ASKED: dict[str, Any] = {"prompt": "the quick", "temperature": 0}


async def test_it_ends_what_is_open_sleeps_and_answers_as_before(
    engine: RunningEngine, client: AsyncOpenAI, control: EngineControl, adapters: dict[str, Path]
) -> None:
    await control.load_adapter("one", adapters["one"])

    async def answers() -> list[str]:
        asked = [client.completions.create(model=name, **ASKED) for name in ("toy", "one")]
        return [answer.choices[0].text for answer in await asyncio.gather(*asked)]

    before = await answers()
    stream = await client.completions.create(
        model="one", **ASKED, max_tokens=300, stream=True,
        extra_body={"ignore_eos": True, "stream_options": {"include_usage": True}},
    )  # fmt: skip
    chunks = aiter(stream)
    await anext(chunks)
    sleep = asyncio.create_task(control.sleep())
    await until(control.asleep)
    with pytest.raises(NotFoundError, match="The engine sleeps"):
        await answers()
    *_, last = [chunk async for chunk in chunks]
    assert last.usage
    assert last.usage.completion_tokens == 300
    await sleep
    await control.sleep()
    assert await control.ready(), "its process lives"
    with pytest.raises(EngineError, match="sleeps"):
        await control.load_adapter("two", adapters["two"])
    assert list(await control.loaded_adapters()) == ["one"]
    await control.wake()
    await control.wake()
    assert not await control.asleep()
    assert await answers() == before


def test_no_weight_is_left_in_memory_and_all_come_back(
    toy: Path, adapters: dict[str, Path]
) -> None:
    model = load_model(toy, name="toy", cpus=1)
    droppable, weights = DroppableWeights(model), AdapterWeights(model)
    weights.attach("one", adapters["one"])
    own = [name for name, _ in model.network.named_parameters() if "lora_" not in name]

    def logits(key: str | None) -> torch.Tensor:
        weights.activate(key)
        with torch.inference_mode():
            found: torch.Tensor = model.network(torch.tensor([[1, 2, 3]])).logits
        return found

    def held() -> int:
        parameters = dict(model.network.named_parameters())
        return sum(parameters[name].untyped_storage().nbytes() for name in own)

    before, size = [logits(None), logits("one")], held()
    assert size > 100_000
    with torch.inference_mode():
        droppable.drop()
        assert held() == 0
        droppable.restore()
    assert held() == size
    for expected, found in zip(before, [logits(None), logits("one")], strict=True):
        assert torch.equal(expected, found)
    assert not torch.equal(*before)
