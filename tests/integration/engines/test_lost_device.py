"""An engine whose device is lost says so, and answers everyone; the device's errors are made up."""

import asyncio
import sys
import threading
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from tests.support.factories.encoders import make_embedder
from tests.support.factories.toy_model import make_model
from tests.support.waiting import until

from windlass.inference_api.errors import ApiError
from windlass.inference_api.requests import SamplingParams
from windlass_agent.engines.builtin.generation.adapter_weights import AdapterWeights
from windlass_agent.engines.builtin.generation.loading import load_model
from windlass_agent.engines.builtin.generation.metrics import EngineMetrics
from windlass_agent.engines.builtin.generation.scheduler import SequenceScheduler
from windlass_agent.engines.builtin.generation.sequence import Sequence
from windlass_agent.engines.builtin.text.detokenize import Detokenizer
from windlass_agent.engines.registry import engines

pytestmark = pytest.mark.torch


def scheduler_of(folder: Path) -> SequenceScheduler:
    model = load_model(folder, name="one")
    return SequenceScheduler(
        model, AdapterWeights(model), max_concurrency=1, max_waiting=4, metrics=EngineMetrics()
    )


def fail() -> None:
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


async def test_passes_that_wait_fail_with_the_one_that_lost_the_device(tmp_path: Path) -> None:
    scheduler = scheduler_of(make_embedder(tmp_path / "model"))
    begun, go_on = threading.Event(), threading.Event()
    ends: list[int] = []

    def lose() -> None:
        begun.set()
        go_on.wait()
        fail()

    calls = [asyncio.create_task(scheduler.call(lose, lambda: ends.append(0)))]
    await asyncio.to_thread(begun.wait)
    for number in (1, 2):
        calls.append(asyncio.create_task(scheduler.call(fail, partial(ends.append, number))))
    await asyncio.sleep(0)
    go_on.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in answers] == [torch.AcceleratorError] * 3
    assert not scheduler.healthy
    with pytest.raises(ApiError):
        await scheduler.call(lambda: 1, lambda: ends.append(3))
    assert ends == [0, 1, 2, 3]
    await scheduler.stop()


# An engine whose device is lost at the first input.
_LOSES = """
import sys, torch
from windlass_agent.engines.builtin.__main__ import main
from windlass_agent.engines.builtin.generation.model import LoadedModel
def embed(self, inputs):
    raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
LoadedModel.embed = embed
sys.exit(main())
"""


async def test_the_engine_ends_with_its_device_after_it_has_answered(tmp_path: Path) -> None:
    model, socket = make_embedder(tmp_path / "model"), tmp_path / "s"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _LOSES, f"--model={model}", "--served-model-name=one",
        f"--uds={socket}", "--device=cpu",
    )  # fmt: skip
    try:
        control = engines()["builtin"].control(f"unix://{socket}")
        await until(control.ready, 60)
        await control.close()
        connector = aiohttp.UnixConnector(path=str(socket))
        async with aiohttp.ClientSession("http://engine", connector=connector) as session:
            body = {"model": "one", "input": "a"}
            async with session.post("/v1/embeddings", json=body) as response:
                assert response.status == HTTPStatus.INTERNAL_SERVER_ERROR
        async with asyncio.timeout(30):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_an_error_of_anything_else_ends_one_pass_alone(tmp_path: Path) -> None:
    scheduler = scheduler_of(make_embedder(tmp_path / "model"))
    with pytest.raises(ZeroDivisionError):
        await scheduler.call(lambda: 1 / 0)
    assert await scheduler.call(lambda: 2) == 2
    await scheduler.stop()


@pytest.mark.parametrize("step", [0, 2], ids=["prompt", "token"])
async def test_open_answers_end_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    scheduler = scheduler_of(make_model(tmp_path / "model"))
    network, passes = scheduler._model.network, []
    forward = network.forward

    def lost(*positional: object, **named: object) -> object:
        passes.append(1)
        if len(passes) > step:
            fail()
        return forward(*positional, **named)

    monkeypatch.setattr(network, "forward", lost)
    sinks: list[asyncio.Queue[Any]] = [asyncio.Queue() for _ in range(2)]
    sequences = [
        Sequence(
            prompt=[1, 2, 3],
            params=SamplingParams(max_tokens=8, ignore_eos=True),
            index=0,
            adapter=None,
            eos=frozenset(),
            detokenizer=Detokenizer(scheduler._model.tokenizer.decode),
            sink=sink,
            generator=torch.Generator(),
        )
        for sink in sinks
    ]

    counts = [0, 0]

    async def answer(number: int) -> None:
        async for _ in scheduler.generate([sequences[number]]):
            counts[number] += 1

    answers = await asyncio.gather(answer(0), answer(1), return_exceptions=True)
    assert ["failed to generate" in str(one) for one in answers] == [True, True]
    assert counts == [step, 0], "the second one waited for its turn"
    await until(lambda: not scheduler.healthy)
    with pytest.raises(ApiError, match="overloaded"):
        await anext(scheduler.generate([sequences[0]]))
    await scheduler.stop()
