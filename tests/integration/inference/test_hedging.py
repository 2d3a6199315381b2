"""Requests that a second engine gets too, since the first one is slow to begin."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, Handler, running_engine, running_front
from tests.support.services.front_usage import used
from tests.support.waiting import stays, until

from windlass.metrics.gateway import HEDGED

HI: Any = [{"role": "user", "content": "hi"}]


class Slow:
    """The handler of an engine that has begun nothing until it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.left = 0

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stand.begin(request) if body.get("stream") else None
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        if response is not None:
            await response.write(b"data: [DONE]\n\n")
            return response
        return await stand.chat(request, body)


@pytest.fixture
def hedge_seconds() -> float:
    return 0.05


@pytest.fixture
async def front(database_url: str, tmp_path: Path, hedge_seconds: float) -> AsyncIterator[Front]:
    inference = {"hedge_seconds": hedge_seconds}
    async with running_front(database_url, tmp_path / "data", inference=inference) as front:
        yield front


@pytest.fixture
async def engines(front: Front) -> AsyncIterator[tuple[Engine, Engine]]:
    async with running_engine() as one, running_engine() as two:
        front.board.pin("toy", one.address, two.address, max_concurrency=4)
        yield one, two


def won(which: str) -> float:
    return float(HEDGED.labels(which)._value.get())


def in_turn(engines: Sequence[Engine], first: Handler, then: Handler) -> Handler:
    """Answers the first request of all one way, and the others another."""

    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        is_first = sum(len(one.requests) for one in engines) == 1
        return await (first if is_first else then)(request, body)

    return answer


async def first_asked(*engines: Engine) -> Engine:
    return await until(lambda: next((one for one in engines if one.requests), None))


async def answers(front: Front, *, stream: bool) -> str:
    client = front.openai()
    if not stream:
        answer = await client.chat.completions.create(model="toy", messages=HI)
        return answer.choices[0].message.content or ""
    chunks = await client.chat.completions.create(model="toy", messages=HI, stream=True)
    return "".join([one.choices[0].delta.content or "" async for one in chunks if one.choices])


@pytest.mark.parametrize("stream", [False, True])
async def test_what_begins_first_is_the_answer_and_the_other_is_cancelled(
    front: Front, engines: tuple[Engine, Engine], stream: bool
) -> None:
    slow, before = Slow(), won("second")
    engines[0].handler = engines[1].handler = in_turn(engines, slow.answer, stand.chat)
    # The copy comes to the other one, which answers.
    assert await answers(front, stream=stream) == "one two three"
    await until(lambda: slow.left == 1)
    assert [len(one.requests) for one in engines] == [1, 1]
    assert won("second") == before + 1
    # Both engines have all their places again, and one request was counted.
    assert (await used(front, 1))["num_model_requests"] == 1
    slow.go_on.set()
    assert {await answers(front, stream=False) for _ in range(8)} == {"one two three"}


async def test_the_first_may_win_after_all(front: Front, engines: tuple[Engine, Engine]) -> None:
    slow, before = Slow(), won("first")
    engines[0].handler = engines[1].handler = slow.answer
    asking = asyncio.create_task(answers(front, stream=False))
    await until(lambda: len(engines[0].requests) + len(engines[1].requests) == 2)
    slow.go_on.set()
    assert await asking == "one two three"
    assert won("first") + won("second") >= before + 1


async def test_a_copy_that_fails_loses(front: Front, engines: tuple[Engine, Engine]) -> None:
    async def fail(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no"}}, status=500)

    slow = Slow()
    engines[0].handler = engines[1].handler = in_turn(engines, slow.answer, fail)
    asking = asyncio.create_task(answers(front, stream=False))
    await until(lambda: all(one.requests for one in engines))
    slow.go_on.set()
    assert await asking == "one two three"


async def test_only_free_places_get_a_copy_and_only_of_what_somebody_waits_for(
    front: Front, engines: tuple[Engine, Engine]
) -> None:
    slow = Slow()
    engines[0].handler = engines[1].handler = slow.answer
    # Each has one place more than it answers at once.
    front.board.pin("toy", *(one.address for one in engines), max_concurrency=1)
    create = front.openai().chat.completions.create
    flex = [
        asyncio.create_task(create(model="toy", messages=HI, service_tier="flex")) for _ in range(3)
    ]
    await until(lambda: len(engines[0].requests) + len(engines[1].requests) == 3)
    asking = asyncio.create_task(answers(front, stream=False))
    # Longer than a copy would take to come.
    await until(lambda: len(engines[0].requests) + len(engines[1].requests) == 4)
    await stays(lambda: (len(engines[0].requests), len(engines[1].requests)) == (2, 2))
    slow.go_on.set()
    assert await asking == "one two three"
    await asyncio.gather(*flex)


async def test_a_client_that_leaves_cancels_both(
    front: Front, engines: tuple[Engine, Engine]
) -> None:
    slow = Slow()
    engines[0].handler = engines[1].handler = slow.answer
    asking = asyncio.create_task(answers(front, stream=False))
    await until(lambda: len(engines[0].requests) + len(engines[1].requests) == 2)
    asking.cancel()
    await until(lambda: slow.left == 2)


@pytest.mark.parametrize("hedge_seconds", [0.0])
async def test_nothing_is_sent_twice_unless_the_operator_says_so(
    front: Front, engines: tuple[Engine, Engine]
) -> None:
    slow = Slow()
    engines[0].handler = engines[1].handler = slow.answer
    asking = asyncio.create_task(answers(front, stream=False))
    await first_asked(*engines)
    await stays(lambda: len(engines[0].requests) + len(engines[1].requests) == 1)
    slow.go_on.set()
    assert await asking == "one two three"
