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
    order: list[tuple[int, int]] = []
    eight_began = asyncio.Event()

    async def run(number: int, tokens: int) -> None:
        if number == 8:
            await eight_began.wait()
        count = 0
        async for _ in await _stream(client, tokens):
            count += 1
            order.append((number, count))
            if len({one for one, _ in order}) == 8:
                eight_began.set()
        order.append((number, -1))

    lengths = [400, 440, 420, 400, 410, 430, 400, 405]
    async with asyncio.timeout(60):
        await asyncio.gather(*[run(*one) for one in enumerate([*lengths, 20])])
    first_end = next(at for at, (_, count) in enumerate(order) if count == -1)
    for number in range(8):
        progress = [count for one, count in order[:first_end] if one == number]
        assert max(progress) > 200, f"stream {number} starved"
    # It begins when a place is free; a reader may see that a few chunks late.
    before = order[: order.index((8, 1))]
    left = [
        length - max(c for n, c in before if n == number) for number, length in enumerate(lengths)
    ]
    assert min(left) < 40
    assert engine.metric("sequences_running") <= 8


async def test_a_client_that_leaves_frees_its_place(
    narrow: RunningEngine, narrow_client: AsyncOpenAI
) -> None:
    finished = narrow.metric('sequences_finished_total{reason="length"}')
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
    assert narrow.metric('sequences_finished_total{reason="length"}') == finished
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
