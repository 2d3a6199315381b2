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
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.services.front_usage import used
from tests.support.waiting import soon, until

from windlass.gateway.inference import relay

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


async def test_a_trace_goes_on_at_the_engine(front: Front, engine: Engine) -> None:
    heads: list[Any] = []

    async def look(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        heads.append(request.headers)
        return await stand.chat(request, body)

    engine.handler = look
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client = front.openai()
    for sent in (
        {"traceparent": parent, "tracestate": "a=1"},
        {"traceparent": "x", "forwarded": "x"},
    ):
        await client.chat.completions.create(model="toy", messages=HI, extra_headers=sent)
    first, second = heads
    assert (first["traceparent"], first["tracestate"]) == (parent, "a=1")
    assert not {"traceparent", "tracestate", "forwarded"} & {name.lower() for name in second}


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
