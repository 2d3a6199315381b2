"""Requests through the front door that find every engine of their model busy."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.waiting import soon, until

from windlass.gateway.inference.engines import places
from windlass.metrics.gateway import WAITING

START = int(time.time()) - 86400
# An engine that answers one at a time gets a second one that is there when the first has ended.
PLACES = 2


class Gate:
    """The handler of an engine that answers each request when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._open = asyncio.Semaphore(0)

    async def answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        self.asked.append(body["messages"][0]["content"])
        await self._open.acquire()
        return await stand.chat(request, body)

    def close(self) -> None:
        """Takes back what was let and nobody has used."""
        self._open = asyncio.Semaphore(0)

    def let(self, number: int) -> None:
        for _ in range(number):
            self._open.release()


# Of tests in which a request waits until its time is up.
timed = pytest.mark.parametrize("hold_seconds", [2.0])


@pytest.fixture
def hold_seconds() -> float:
    return 60.0


@pytest.fixture
async def front(database_url: str, tmp_path: Path, hold_seconds: float) -> AsyncIterator[Front]:
    inference = {"hold_seconds": hold_seconds}
    async with running_front(database_url, tmp_path / "data", inference=inference) as front:
        yield front


@pytest.fixture
async def gate(front: Front) -> AsyncIterator[Gate]:
    gate = Gate()
    async with running_engine() as engine:
        engine.handler = gate.answer
        front.board.pin("toy", engine.address, max_concurrency=1)
        yield gate


def says(text: str) -> Any:
    return [{"role": "user", "content": text}]


def ask(client: openai.AsyncOpenAI, text: str, **more: Any) -> asyncio.Task[Any]:
    create = client.chat.completions.create
    return asyncio.create_task(create(model="toy", messages=says(text), **more))


async def waiting(number: int) -> None:
    """Waits until so many requests stand in line."""
    async with soon(10):
        await until(lambda: WAITING._value.get() == number)


async def another_project(front: Front) -> openai.AsyncOpenAI:
    async with front.http() as http:
        made = await http.post("/v1/projects", json={"title": "modest"})
    return front.openai(project=made.json()["id"])


async def test_a_projects_single_request_comes_before_the_queue_of_a_greedy_one(
    front: Front, gate: Gate
) -> None:
    greedy, modest = front.openai(), await another_project(front)
    tasks = []
    for number in range(5):
        tasks.append(ask(greedy, f"greedy {number}"))
        await until(lambda: len(gate.asked) == min(PLACES, len(tasks)))
        await waiting(max(0, len(tasks) - PLACES))
    tasks.append(ask(modest, "modest"))
    await waiting(4)
    # The engine has what it can answer, and no more.
    assert gate.asked == ["greedy 0", "greedy 1"]
    gate.let(1)
    await until(lambda: len(gate.asked) == 3)
    assert gate.asked[2] == "modest"
    gate.let(5)
    for answer in await asyncio.gather(*tasks):
        assert answer.choices[0].message.content == "one two three"
    assert gate.asked[3:] == ["greedy 2", "greedy 3", "greedy 4"]
    await waiting(0)


async def test_who_may_wait_lets_others_go_first(front: Front, gate: Gate) -> None:
    client = front.openai()
    tasks = [ask(client, str(number)) for number in range(PLACES)]
    await until(lambda: len(gate.asked) == PLACES)
    for number, (text, tier) in enumerate([("later", "flex"), ("now", "default")], start=1):
        tasks.append(ask(client, text, service_tier=tier))
        await waiting(number)
    gate.let(1)
    await until(lambda: len(gate.asked) == PLACES + 1)
    assert gate.asked[-1] == "now"
    gate.let(PLACES + 1)
    await asyncio.gather(*tasks)
    assert gate.asked[-1] == "later"


async def test_a_stream_hears_that_it_waits_and_is_answered(
    front: Front, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "TELL_SECONDS", 0.05)
    tasks = [ask(front.openai(), str(number)) for number in range(PLACES)]
    await until(lambda: len(gate.asked) == PLACES)
    body = {"model": "toy", "messages": says("streamed"), "stream": True}
    async with (
        front.http() as http,
        http.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        lines = answer.aiter_lines()
        assert (answer.status_code, await anext(lines)) == (200, ": the engines are busy")
        gate.let(PLACES + 1)
        assert [line async for line in lines][-2:] == ["data: [DONE]", ""]
    await asyncio.gather(*tasks)


@timed
async def test_what_waits_too_long_is_told_when_to_come_again(front: Front, gate: Gate) -> None:
    tasks = [ask(front.openai(), str(number)) for number in range(PLACES)]
    await until(lambda: len(gate.asked) == PLACES)
    with pytest.raises(openai.InternalServerError, match="engines are busy") as caught:
        await ask(front.openai(), "late")
    assert (caught.value.status_code, caught.value.code) == (503, "engines_busy")
    assert int(caught.value.response.headers["retry-after"]) >= 1
    gate.let(PLACES)
    await asyncio.gather(*tasks)
    assert len(gate.asked) == PLACES


async def test_a_client_that_leaves_the_line_gets_no_engine(front: Front, gate: Gate) -> None:
    tasks = [ask(front.openai(), str(number)) for number in range(PLACES)]
    await until(lambda: len(gate.asked) == PLACES)
    async with front.http() as http:
        body = {"model": "toy", "messages": says("gone")}
        leaving = asyncio.create_task(http.post("/v1/chat/completions", json=body))
        await waiting(1)
        leaving.cancel()
        with pytest.raises((asyncio.CancelledError, httpx.HTTPError)):
            await leaving
    await waiting(0)
    gate.let(PLACES + 1)
    await asyncio.gather(*tasks, ask(front.openai(), "next"))
    assert "gone" not in gate.asked


async def test_streams_that_leave_at_any_moment_keep_no_place(
    front: Front, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "TELL_SECONDS", 0.001)
    tasks = [ask(front.openai(), str(number)) for number in range(PLACES)]
    await until(lambda: len(gate.asked) == PLACES)
    body = {"model": "toy", "messages": says("leaves"), "stream": True}

    async def stream() -> None:
        async with (
            front.http() as http,
            http.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            async for _ in answer.aiter_lines():
                pass

    leaving = [asyncio.create_task(stream()) for _ in range(30)]
    await waiting(30)
    for number, task in enumerate(leaving):
        # Each leaves a little later than the place comes to it, or to the one before.
        gate.let(1)
        for _ in range(number % 7):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    await waiting(0)
    gate.let(100)
    await asyncio.gather(*tasks)
    gate.close()
    tasks = [ask(front.openai(), f"after {number}") for number in range(PLACES + 1)]
    # What has left gives its place back when the gateway hears of it.
    await until(lambda: sum(text.startswith("after") for text in gate.asked) == PLACES)
    await waiting(1)
    gate.let(PLACES + 1)
    await asyncio.gather(*tasks)


@timed
async def test_what_is_refused_in_line_is_no_usage(front: Front, gate: Gate) -> None:
    tasks = [ask(front.openai(), str(number)) for number in range(PLACES)]
    await until(lambda: len(gate.asked) == PLACES)
    with pytest.raises(openai.InternalServerError):
        await ask(front.openai(), "late")
    gate.let(PLACES)
    await asyncio.gather(*tasks)
    async with front.http() as http:

        async def counted() -> int:
            answer = await http.get("/v1/usage", params={"start_time": START, "limit": 31})
            pages = answer.raise_for_status().json()["data"]
            return sum(one["num_model_requests"] for page in pages for one in page["results"])

        assert await until(counted, holds=lambda number: number >= PLACES) == PLACES


async def test_an_engine_that_comes_takes_what_waits(front: Front, gate: Gate) -> None:
    tasks = [ask(front.openai(), str(number)) for number in range(PLACES + 1)]
    await waiting(1)
    async with running_engine() as second:
        addresses = _addresses(front, second)
        front.board.pin("toy", *addresses, max_concurrency=1)
        async with soon(5):
            await until(lambda: len(second.requests) == 1)
        gate.let(PLACES)
        await asyncio.gather(*tasks)


async def test_an_engine_that_goes_sends_what_waits_to_the_next(front: Front, gate: Gate) -> None:
    tasks = [ask(front.openai(), str(number)) for number in range(PLACES + 1)]
    await waiting(1)
    async with running_engine() as second:
        front.board.pin("toy")
        front.board.on_want = lambda _, model: front.board.pin(model, second.address)
        async with soon(5):
            await until(lambda: len(second.requests) == 1)
        gate.let(PLACES)
        await asyncio.gather(*tasks)


def _addresses(front: Front, second: Engine) -> tuple[str, str]:
    (route,) = front.board._routes.values()
    return route.endpoints[0].address, second.address
