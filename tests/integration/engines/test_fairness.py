"""Nobody starves, nobody holds a place that it left."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from tests.support.processes.engine import RunningEngine
from tests.support.waiting import until

pytestmark = pytest.mark.torch


async def _stream(client: AsyncOpenAI, tokens: int) -> Any:
    return await client.completions.create(
        model="toy",
        prompt="the quick",
        max_tokens=tokens,
        stream=True,
        extra_body={"ignore_eos": True},
    )


async def test_eight_streams_move_together_and_a_ninth_waits_its_turn(
    client: AsyncOpenAI, engine: RunningEngine
) -> None:
    progress = [0] * 8
    at_first_end: list[int] = []
    # By the engine's own count when the ninth begins: what is read of others may be late.
    ended_before: list[float] = []
    eight_began = asyncio.Event()

    async def run(number: int, tokens: int) -> None:
        async for _ in await _stream(client, tokens):
            progress[number] += 1
            if all(progress):
                eight_began.set()
        at_first_end[:] = at_first_end or progress

    async def ninth() -> None:
        await eight_began.wait()
        async for _ in await _stream(client, 250):
            if not ended_before:
                ended_before.append(_ended(engine))

    before = _ended(engine)
    async with asyncio.timeout(60):
        await asyncio.gather(*[run(*one) for one in enumerate([300, *[490] * 7])], ninth())
    assert min(at_first_end) > 100, "one starved"
    # The one place that was free, long before the others were.
    assert ended_before[0] == before + 1
    assert engine.metric("sequences_running") <= 8


def _ended(engine: RunningEngine) -> float:
    return engine.metric('sequences_finished_total{reason="length"}')


async def test_a_client_that_leaves_frees_its_place(
    narrow: RunningEngine, narrow_client: AsyncOpenAI
) -> None:
    finished = _ended(narrow)
    stream = await _stream(narrow_client, 500)
    await anext(aiter(stream))
    await stream.close()
    await until(lambda: narrow.metric("sequences_running") == 0)
    waiting = asyncio.create_task(
        narrow_client.completions.create(
            model="toy", prompt="the", max_tokens=500, extra_body={"ignore_eos": True}
        )
    )
    await until(lambda: narrow.metric("sequences_running") == 1)
    waiting.cancel()
    await until(lambda: narrow.metric("sequences_running") == 0)
    assert _ended(narrow) == finished
    answer = await narrow_client.completions.create(model="toy", prompt="the", max_tokens=3)
    assert answer.choices
    # Clients leave all the time: an operator is not told of an error.
    assert "Traceback" not in (narrow.model.parent / "log").read_text()


async def test_a_full_line_is_refused_at_once(
    narrow: RunningEngine, narrow_client: AsyncOpenAI
) -> None:
    running = await _stream(narrow_client, 500)
    waiting = asyncio.create_task(_stream(narrow_client, 3))
    await until(lambda: narrow.metric("sequences_waiting") == 1)
    with pytest.raises(openai.InternalServerError) as refusal:
        await _stream(narrow_client, 3)
    assert refusal.value.status_code == 503
    assert refusal.value.code == "engine_overloaded"
    await running.close()
    assert len([chunk async for chunk in await waiting]) == 3
