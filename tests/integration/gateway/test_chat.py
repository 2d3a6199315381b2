"""Chat through the front door with openai-python, over scripted engines."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.waiting import soon, until

from windlass.gateway.inference import relay, sse

START = int(time.time()) - 86400
HI: Any = [{"role": "user", "content": "hi"}]


@pytest.fixture
def hold_seconds() -> float:
    return 3.0


@pytest.fixture
async def front(database_url: str, tmp_path: Path, hold_seconds: float) -> AsyncIterator[Front]:
    inference = {"hold_seconds": hold_seconds}
    async with running_front(database_url, tmp_path / "data", inference=inference) as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address)
        yield engine


async def used(front: Front, requests: int) -> dict[str, Any]:
    """The sums of usage, once they count so many requests."""
    async with front.http() as http:

        async def sums() -> dict[str, Any] | None:
            answer = await http.get("/v1/usage", params={"start_time": START, "limit": 31})
            assert answer.status_code == 200, answer.text
            page = answer.json()
            while page["next_page"] and not any(b["results"] for b in page["data"]):
                query = {"start_time": START, "limit": 31, "page": page["next_page"]}
                page = (await http.get("/v1/usage", params=query)).json()
            return next((r for b in page["data"] for r in b["results"]), None)

        return await until(sums, holds=lambda found: found["num_model_requests"] >= requests)


async def test_a_chat_is_answered_and_counted(front: Front, engine: Engine) -> None:
    client = front.openai()
    answer = await client.chat.completions.create(model="toy", messages=HI, temperature=0.5)
    assert answer.choices[0].message.content == "one two three"
    assert answer._request_id
    assert engine.requests[0] == {"model": "toy", "messages": HI, "temperature": 0.5}
    counted = await used(front, 1)
    assert (counted["input_tokens"], counted["output_tokens"]) == (7, 3)


async def test_a_body_that_needs_nothing_added_passes_byte_for_byte(
    front: Front, engine: Engine
) -> None:
    body = b'{ "model":"toy" , "messages":[], "seed": 12345678901234567890, "x": 1.10 }'
    async with front.http() as http:
        assert (await http.post("/v1/chat/completions", content=body)).status_code == 200
    assert engine.bodies == [body]


@pytest.mark.parametrize("asked", [None, {"include_usage": False}, {"include_usage": True}])
async def test_a_stream_shows_the_usage_that_was_asked_for_and_counts_it_all(
    front: Front, engine: Engine, asked: Any
) -> None:
    options = {} if asked is None else {"stream_options": asked}
    stream = await front.openai().chat.completions.create(
        model="toy", messages=HI, stream=True, **options
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two three"
    with_usage = [chunk for chunk in chunks if chunk.usage is not None]
    if asked and asked["include_usage"]:
        assert [chunk.choices for chunk in with_usage] == [[]]
        assert with_usage[0].usage is not None
        assert with_usage[0].usage.completion_tokens == 3
    else:
        assert not with_usage
        assert len(chunks) == 3
    counted = await used(front, 1)
    assert (counted["input_tokens"], counted["output_tokens"]) == (7, 3)


async def test_a_client_that_leaves_cancels_the_engine_and_is_counted_to_the_token(
    front: Front, engine: Engine
) -> None:
    async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stand.begin(request)
        for number in range(1, 10_000):
            await response.write(stand.sse(stand.chunk("x", usage=stand.usage(5, number))))
            if number == 3:
                await asyncio.Event().wait()
        return response

    engine.handler = endless
    stream = await front.openai().chat.completions.create(model="toy", messages=HI, stream=True)
    seen = 0
    async for _ in stream:
        seen += 1
        if seen == 3:
            break
    await stream.close()
    async with soon(2):
        await engine.left.wait()
    counted = await used(front, 1)
    assert (counted["input_tokens"], counted["output_tokens"]) == (5, 3)


async def test_a_client_that_leaves_before_the_answer_cancels_the_engine(
    front: Front, engine: Engine
) -> None:
    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    engine.handler = slow
    asking = asyncio.create_task(front.openai().chat.completions.create(model="toy", messages=HI))
    await until(lambda: engine.requests)
    asking.cancel()
    async with soon(2):
        await engine.left.wait()
    assert (await used(front, 1))["num_model_requests"] == 1


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
            # Every call succeeds, also before the route has arrived.
            await client.chat.completions.create(model="toy", messages=HI)
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


async def test_a_model_without_an_engine_is_wanted_and_waited_for(front: Front) -> None:
    async with running_engine() as engine:
        front.board.pin("cold")
        front.board.on_want = lambda project_id, model: front.board.pin(model, engine.address)
        answer = await front.openai().chat.completions.create(model="cold", messages=HI)
        assert answer.choices
        assert front.board.wanted[0][1] == "cold"


async def test_a_body_that_is_refused_starts_no_engine(front: Front) -> None:
    front.board.pin("cold")
    for wrong, param in (
        ({"messages": HI, "temprature": 1}, "temprature"),
        ({"messages": []}, "messages"),
        ({"messages": HI, "n": 0}, "n"),
        ({}, "messages"),
    ):
        async with front.http() as http:
            answer = await http.post("/v1/chat/completions", json={"model": "cold", **wrong})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert not front.board.wanted


@pytest.mark.parametrize("hold_seconds", [60.0])
async def test_a_stream_hears_that_its_model_loads(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "LOOK_SECONDS", 0.05)
    body = {"model": "cold", "messages": HI, "stream": True}
    async with running_engine() as engine, front.http() as http:
        front.board.pin("cold")
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            assert await anext(lines) == ": the model is loading"
            front.board.pin("cold", waits_for="starting the engine")
            assert [await anext(lines), await anext(lines)] == ["", ": starting the engine"]
            front.board.pin("cold", engine.address)
            rest = [line async for line in lines]
        assert rest[-2:] == ["data: [DONE]", ""]
        front.board.pin("broken")
        stream = await front.openai().chat.completions.create(
            model="broken", messages=HI, stream=True
        )
        front.board.pin("broken", error="no memory")
        with pytest.raises(openai.APIError, match="no memory"):
            _ = [chunk async for chunk in stream]


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
            front.board.away = True
            await until(lambda: len(front.board.wanted) >= 2)
            front.board.pin("cold", engine.address)
            rest = [line async for line in lines]
        assert rest[-2:] == ["data: [DONE]", ""]
        # What it does not outlast is told to a client that has heard something already.
        front.board.pin("cold")
        front.board.away = False
        front.board.on_want = lambda *_: None if len(front.board.wanted) < 4 else 1 / 0
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            said = [line async for line in answer.aiter_lines() if line.startswith("data:")]
            assert answer.status_code == 200
        assert orjson.loads(said[0][5:])["error"]["type"] == "server_error"


async def test_a_model_that_cannot_start_says_why(front: Front) -> None:
    front.board.pin("broken")
    front.board.on_want = lambda project_id, model: front.board.pin(model, error="no memory")
    with pytest.raises(openai.InternalServerError, match="no memory") as caught:
        await front.openai().chat.completions.create(model="broken", messages=HI)
    assert caught.value.status_code == 503


async def test_a_model_that_does_not_come_in_time_is_not_ready(front: Front) -> None:
    front.board.pin("never", waits_for="copying the model")
    words = "'never' is still loading: copying the model."
    with pytest.raises(openai.InternalServerError, match=words) as caught:
        await front.openai().chat.completions.create(model="never", messages=HI)
    assert caught.value.response.headers["retry-after"]


async def test_an_unknown_model_is_not_found(front: Front) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await front.openai().chat.completions.create(model="nope", messages=HI)
    assert caught.value.code == "model_not_found"


async def test_a_projects_own_route_comes_before_the_one_for_all(
    front: Front, engine: Engine
) -> None:
    async with front.http() as http:
        project = (await http.get("/v1/me")).json()["project"]["id"]
    async with running_engine() as own:
        front.board.pin("toy", own.address, project_id=project)
        front.board.pin("toy", "http://127.0.0.1:1", project_id="proj_other")
        client = front.openai()

        async def known() -> list[Any]:
            with contextlib.suppress(openai.APIStatusError):
                await client.chat.completions.create(model="toy", messages=HI)
            return own.requests

        await until(known)
        before = len(engine.requests)
        for _ in range(3):
            await client.chat.completions.create(model="toy", messages=HI)
        assert (len(own.requests), len(engine.requests)) == (4, before)


async def test_a_bad_body_names_the_field(front: Front, engine: Engine) -> None:
    bodies: tuple[tuple[bytes, str | None], ...] = (
        (b"{", None),
        (b'{"messages":[]}', "model"),
        (b'{"model":3}', "model"),
        (b'{"model":"toy","stream":"yes"}', "stream"),
        (b'{"model":"toy","stream_options":[]}', "stream_options"),
        (b"\xff\xfe", None),
        (b"[]", None),
    )
    async with front.http() as http:
        for body, param in bodies:
            answer = await http.post("/v1/chat/completions", content=body)
            assert answer.status_code == 400, body
            assert answer.json()["error"]["param"] == param, body
    assert not engine.requests


async def test_a_body_that_is_too_large_is_refused(front: Front, engine: Engine) -> None:
    async with front.http() as http:
        answer = await http.post("/v1/chat/completions", content=b" " * (9 * 2**20))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"


async def test_a_reward_model_scores_within_limits_and_does_nothing_else(
    database_url: str, tmp_path: Path
) -> None:
    async def score(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        data = [{"object": "score", "index": 0, "score": 0.5}]
        usage = {"prompt_tokens": 5, "total_tokens": 5}
        return web.json_response({"object": "list", "data": data, "usage": usage})

    async with (
        running_front(database_url, tmp_path / "data", limits={"requests_per_minute": 2}) as front,
        running_engine() as engine,
        front.http() as http,
    ):
        engine.handler = score
        front.board.pin("toy", engine.address)
        front.board.pin("judge", engine.address, scores=True)
        asked = {"model": "judge", "input": "good?"}
        answer = await _first_answer(http, asked, path="/v1/score")
        assert answer.json()["data"][0]["score"] == 0.5
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        refused = await http.post("/v1/score", json=asked | {"model": "toy"})
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "wrong_model_task"
        assert (await http.post("/v1/score", json=asked)).status_code == 429
        assert len(engine.requests) == 1
        counted = await used(front, 1)
        assert (counted["input_tokens"], counted["output_tokens"]) == (5, 0)


async def test_a_reward_model_is_asked_for_scores_alone(front: Front, engine: Engine) -> None:
    front.board.pin("judge", engine.address, scores=True)
    async with front.http() as http:
        for path in ("chat/completions", "completions", "embeddings"):
            refused = await _first_answer(http, {"model": "judge"}, path=f"/v1/{path}")
            assert refused.status_code == 400, path
            assert refused.json()["error"]["code"] == "wrong_model_task", path
            assert "/v1/score" in refused.json()["error"]["message"], path
    assert not engine.requests


async def test_extra_routes_go_to_engines_that_offer_them(front: Front, engine: Engine) -> None:
    async def rerank(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"path": request.path})

    engine.handler = rerank
    async with front.http() as http:
        await until(lambda: front.board._watchers)
        answer = await http.post("/v1/rerank", json={"model": "toy"})
        assert answer.json() == {"path": "/v1/rerank"}
        assert (await http.get("/v1/rerank")).status_code == 405


async def test_use_touches_the_model_once_in_a_while(front: Front, engine: Engine) -> None:
    client = front.openai()
    for _ in range(5):
        await client.chat.completions.create(model="toy", messages=HI)
    await until(lambda: front.board.wanted)
    assert len(front.board.wanted) == 1


async def test_limits_are_told_and_held(database_url: str, tmp_path: Path) -> None:
    limits = {"requests_per_minute": 2, "tokens_per_minute": 10_000}
    async with (
        running_front(database_url, tmp_path / "data", limits=limits) as front,
        running_engine() as engine,
        front.http() as http,
    ):
        front.board.pin("toy", engine.address)
        body = {"model": "toy", "messages": HI, "max_tokens": 100}
        answer = await _first_answer(http, body)
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        await http.post("/v1/chat/completions", json=body)
        refused = await http.post("/v1/chat/completions", json=body)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 31
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        # Settled by what was used, not by what was reserved.
        left = int(refused.headers["x-ratelimit-remaining-tokens"])
        assert left == 10_000 - 2 * 10 or left > 10_000 - 2 * 100


async def _first_answer(
    http: httpx.AsyncClient, body: dict[str, Any], *, path: str = "/v1/chat/completions"
) -> httpx.Response:
    """Returns the answer once the route has arrived."""
    return await until(
        lambda: http.post(path, content=orjson.dumps(body)),
        holds=lambda answer: answer.status_code != 404,
    )
