"""Requests through the front door whose engines fail, and which of them reach another one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.services.front_usage import used
from tests.support.waiting import until

from windlass.gateway.inference import relay, sse
from windlass.gateway.inference.engines.ejection import FAILURES
from windlass.inference_api.errors import asleep

HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    inference = {"hold_seconds": 3.0}
    async with running_front(database_url, tmp_path / "data", inference=inference) as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address)
        yield engine


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"error": {"message": "too long", "type": "x", "param": "messages", "code": "c"}}, "too"),
        ({"object": "error", "message": "bad n", "type": "BadRequestError", "code": 400}, "bad n"),
        ({"detail": [{"msg": "no"}]}, "No"),
    ],
)
async def test_an_engines_error_comes_in_openais_shape(
    front: Front, engine: Engine, sent: Any, message: str
) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(sent, status=400)

    engine.handler = refuse
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        await front.openai().chat.completions.create(model="toy", messages=HI, stream=True)
    body = caught.value.response.json()
    assert set(body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("status", [500, 502])
async def test_what_an_engine_says_of_its_own_failure_is_for_the_operator(
    front: Front, engine: Engine, status: int
) -> None:
    said = 'Traceback (most recent call last):\n  File "/srv/vllm/core.py", line 7\nKeyError: 7'

    async def fail(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": said, "code": status}}, status=status)

    engine.handler = fail
    client = front.openai().with_options(max_retries=0)
    with capture_logs() as logs, pytest.raises(openai.InternalServerError) as caught:
        await client.chat.completions.create(model="toy", messages=HI)
    identifier = caught.value.response.headers["x-request-id"]
    error = caught.value.response.json()["error"]
    assert error["message"] == f"The engine failed to answer (request {identifier})."
    assert (caught.value.status_code, error["code"]) == (status, "engine_error")
    (logged,) = [entry for entry in logs if entry["event"] == "engine_error"]
    assert "/srv/vllm/core.py" in logged["body"]


async def test_an_engine_that_dies_mid_stream_is_an_error_chunk(
    front: Front, engine: Engine
) -> None:
    async def die(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stand.begin(request)
        await response.write(stand.sse(stand.chunk("x", usage=stand.usage(5, 1))))
        assert request.transport is not None
        request.transport.abort()
        return response

    engine.handler = die
    stream = await front.openai().chat.completions.create(model="toy", messages=HI, stream=True)
    assert (await anext(stream)).choices
    with pytest.raises(openai.APIError, match="broke off"):
        await anext(stream)
    assert (await used(front, 1))["output_tokens"] == 1


async def test_an_engine_that_dies_within_an_error_has_failed(front: Front, engine: Engine) -> None:
    async def die(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(status=400, headers={"content-length": "100"})
        await response.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        return response

    engine.handler = die
    client = front.openai().with_options(max_retries=0)
    with pytest.raises(openai.InternalServerError, match="broke off") as caught:
        await client.chat.completions.create(model="toy", messages=HI)
    assert (caught.value.status_code, caught.value.code) == (502, "engine_failed")
    assert (await used(front, 1))["num_model_requests"] == 1


async def test_a_request_that_ends_engines_ends_two_at_most(front: Front) -> None:
    async def die(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    client = front.openai().with_options(max_retries=0)
    async with running_engine() as one, running_engine() as two, running_engine() as three:
        for engine in (one, two, three):
            engine.handler = die
        front.board.pin("toy", one.address, two.address, three.address)
        with pytest.raises(openai.InternalServerError, match="broke off") as caught:
            await client.chat.completions.create(model="toy", messages=HI)
        assert (caught.value.status_code, caught.value.code) == (502, "engine_failed")
        assert sum(len(engine.requests) for engine in (one, two, three)) == 2


async def test_an_answer_has_its_bound(
    front: Front, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "ANSWER_BYTES", 1000)
    monkeypatch.setattr(sse, "EVENT_BYTES", 1000)

    async def long(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return web.json_response({"choices": [], "said": "x" * 1000})
        response = await stand.begin(request)
        await response.write(b"data: " + b"x" * 1001)
        return response

    engine.handler = long
    client = front.openai().with_options(max_retries=0)
    with pytest.raises(openai.InternalServerError, match="an answer that is too long"):
        await client.chat.completions.create(model="toy", messages=HI)
    with pytest.raises(openai.APIError, match="an event that is too long"):
        async for _ in await client.chat.completions.create(model="toy", messages=HI, stream=True):
            pass


async def test_a_dead_engine_is_passed_over(front: Front, engine: Engine) -> None:
    client = front.openai()
    async with running_engine() as other:
        front.board.pin(
            "toy", "http://127.0.0.1:1", engine.address, "unix:/nonexistent", other.address
        )

        async def known() -> bool:
            # Every call succeeds, also before the route has arrived. At once: both are used.
            calls = (client.chat.completions.create(model="toy", messages=HI) for _ in range(4))
            await asyncio.gather(*calls)
            return len(other.requests) >= 3

        await until(known)
    front.board.pin("toy", "http://127.0.0.1:1")

    async def refused() -> openai.InternalServerError | None:
        try:
            await client.chat.completions.create(model="toy", messages=HI)
        except openai.InternalServerError as error:
            return error
        return None

    found = await until(refused)
    assert (found.status_code, found.code) == (503, "model_not_ready")


async def test_what_an_engine_has_unloaded_is_answered_by_another_and_counted_once(
    front: Front,
) -> None:
    async def unloaded(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        error = {"message": "The model 'toy' does not exist.", "code": "model_not_found"}
        return web.json_response({"error": error}, status=404)

    async def busy(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        # Until the other one has been asked, as the next in turn, however far it seems.
        await until(lambda: len(other.requests) > known)
        return await stand.chat(request, body)

    client = front.openai().with_options(max_retries=0)
    ask = client.chat.completions.create
    async with running_engine() as engine, running_engine() as other:
        engine.handler, other.handler = busy, unloaded
        # At once: no request knows the first alone.
        front.board.pin("toy", engine.address, other.address)
        known = 0
        for answer in await asyncio.gather(*(ask(model="toy", messages=HI) for _ in range(2))):
            assert answer.usage
            assert answer.usage.completion_tokens == 3
        known = len(other.requests)
        for stream in await asyncio.gather(
            *(ask(model="toy", messages=HI, stream=True) for _ in range(2))
        ):
            assert len([chunk async for chunk in stream]) == 3
        assert len(engine.requests) == 4
        found = await used(front, 4)
        assert (found["num_model_requests"], found["output_tokens"]) == (4, 12)


async def _says_500(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.json_response({"error": {"message": "no"}}, status=500)


async def _breaks_off(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-length": "100"})
    await response.prepare(request)
    assert request.transport is not None
    # Not aborted: the head could be lost with the connection, and another engine be asked.
    request.transport.close()
    return response


@pytest.mark.parametrize("fail", [_says_500, _breaks_off])
async def test_an_engine_that_fails_at_all_requests_does_not_draw_them(
    front: Front, engine: Engine, fail: Any
) -> None:
    async def busy_with_the_first(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if len(engine.requests) == 1:
            await enough.wait()
        return await stand.chat(request, body)

    client = front.openai().with_options(max_retries=0)
    enough = asyncio.Event()
    engine.handler = busy_with_the_first
    async with running_engine() as bad, asyncio.TaskGroup() as group:
        # The one that fails is so the less busy.
        group.create_task(_asked(client))
        await until(lambda: engine.requests)
        bad.handler = fail
        front.board.pin("toy", engine.address, bad.address)
        before = 1
        while await _asked(client):
            before += 1
        cut = 1
        with capture_logs() as logs:
            for _ in range(59):
                cut += not await _asked(client)
        enough.set()
    # Five in a row, and as many again each time that its probe has let it back meanwhile.
    back = sum(one["event"] == "engine_reached_again" for one in logs)
    assert FAILURES <= cut <= (1 + back) * FAILURES
    assert len(engine.requests) == before + 60 - cut


async def _asked(client: openai.AsyncOpenAI) -> bool:
    """Returns True if a request was answered."""
    try:
        await client.chat.completions.create(model="toy", messages=HI)
    except openai.InternalServerError:
        return False
    return True


async def test_an_engine_that_lacks_something_is_not_left_out(front: Front, engine: Engine) -> None:
    async def lacks(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no"}}, status=501)

    client = front.openai().with_options(max_retries=0)
    engine.handler = lacks
    async with running_engine() as other:
        other.handler = lacks
        front.board.pin("toy", engine.address, other.address)
        with capture_logs() as logs:
            for _ in range(3 * FAILURES):
                with pytest.raises(openai.InternalServerError):
                    await client.chat.completions.create(model="toy", messages=HI)
    assert "engine_ejected" not in {entry["event"] for entry in logs}


async def test_a_wait_outlasts_a_restart_of_the_service_that_starts_engines(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LOOK_SECONDS", 0.05)
    inference = {"hold_seconds": 60.0, "idle_seconds": 1.0}
    body = {"model": "cold", "messages": HI, "stream": True}
    async with (
        running_front(database_url, tmp_path / "data", inference=inference) as front,
        running_engine() as engine,
        front.http() as http,
    ):
        front.board.pin("cold")
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": the model is loading"
            await until(lambda: front.board.wanted)
            front.board.away = True
            await until(lambda: len(front.board.wanted) >= 2)
            front.board.pin("cold", engine.address)
            rest = [line async for line in lines]
        assert rest[-2:] == ["data: [DONE]", ""]
        # What it does not outlast is told to a client that has heard something already.
        front.board.pin("colder")
        front.board.away = False
        body["model"] = "colder"

        def fails(*_: str) -> None:
            raise RuntimeError("unforeseen")

        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == ": the model is loading"
            front.board.on_want = fails
            said = [line async for line in lines if line.startswith("data:")]
            assert answer.status_code == 200
        assert orjson.loads(said[0][5:])["error"]["type"] == "server_error"


async def test_a_request_that_came_to_an_engine_that_sleeps_is_held_until_it_wakes(
    front: Front, engine: Engine
) -> None:
    async def refuse(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        # The gateway hears late that it sleeps, and wants it.
        front.board.pin("toy", waits_for="sleeping until somebody asks")
        engine.handler = None
        error = asleep()
        return web.json_response({"error": {"code": error.code}}, status=error.status)

    engine.handler = refuse
    front.board.on_want = lambda project_id, model: front.board.pin(model, engine.address)
    answer = await front.openai().chat.completions.create(model="toy", messages=HI)
    assert answer.choices[0].message.content == "one two three"
    assert len(engine.requests) == 2
