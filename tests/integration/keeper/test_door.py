"""The door over an engine of which the test decides what it answers, and when."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import httpx
import pytest
from aiohttp import web
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass_agent.keeper.door import Door


class Kept:
    """A keeper's word."""

    def __init__(self) -> None:
        self.serves, self.unanswered = True, False
        self.silenced: Callable[[], None] = lambda: None

    def when_silent(self, called: Callable[[], None]) -> None:
        self.silenced = called

    def give_up(self) -> None:
        self.serves, self.unanswered = False, True
        self.silenced()


class Stage:
    """A door, and the engine behind it."""

    def __init__(self) -> None:
        self.kept = cast("Any", Kept())
        self.engine_port, self.port = free_port(), free_port()
        self.door = Door(self.kept, f"http://127.0.0.1:{self.engine_port}")
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self.connections: set[Any] = set()
        self.begun = 0

    async def completions(self, request: web.Request) -> web.StreamResponse:
        self.connections.add(request.transport)
        body = await request.json()
        if "dies" in body and request.transport is not None:
            request.transport.abort()
        if "now" in body:
            return web.json_response({})
        response = web.StreamResponse()
        if "streams" in body:
            await response.prepare(request)
            await response.write(b"data: {}\n\n")
        self.begun += 1
        await asyncio.Event().wait()
        return response

    async def say(self, **body: Any) -> httpx.Response:
        return await self.client.post("/v1/completions", json=body)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    engine = web.Application()
    engine.router.add_post("/v1/completions", made.completions)
    runners = []
    for app, port in ((engine, made.engine_port), (made.door.app(), made.port)):
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        runners.append(runner)
    try:
        yield made
    finally:
        await made.client.aclose()
        for runner in reversed(runners):
            await runner.cleanup()


async def test_no_request_meets_a_connection_that_the_engine_closes(stage: Stage) -> None:
    for _ in range(3):
        assert (await stage.say(now=True)).status_code == 200
    assert len(stage.connections) == 3


async def test_one_that_breaks_off_has_had_the_request_and_one_that_is_away_has_not(
    stage: Stage,
) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await stage.say(dies=True)
    gone = Door(stage.kept, f"http://127.0.0.1:{free_port()}")
    runner, port = web.AppRunner(gone.app()), free_port()
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        url = f"http://127.0.0.1:{port}/v1/completions"
        answer = await stage.client.post(url, json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_stopped")
    finally:
        await runner.cleanup()


async def test_an_engine_that_answers_no_more_keeps_no_request_and_no_drain(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = asyncio.create_task(stage.say())
    async with stage.client.stream("POST", "/v1/completions", json={"streams": True}) as stream:
        chunks = stream.aiter_raw()
        assert await anext(chunks) == b"data: {}\n\n"
        draining = asyncio.create_task(stage.door.drained())
        await until(lambda: stage.begun == 2)
        stage.kept.give_up()
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(chunks)
    # Cut as well: it may have been computed, which no 503 would say.
    with pytest.raises(httpx.RemoteProtocolError):
        await waiting
    await draining
    await stage.door.drained()
    assert (await stage.say(now=True)).status_code == 503
    assert not caplog.records
    # Once it answers again, so does the door.
    stage.kept.serves, stage.kept.unanswered = True, False
    assert (await stage.say(now=True)).status_code == 200
