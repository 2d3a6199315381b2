"""Usage of requests that are cut: the engine's own numbers, or an estimate that says so."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from aiohttp import web
from tests.support.factories.toy_model import make_model
from tests.support.processes.engine import RunningEngine
from tests.support.processes.engine import running_engine as running_builtin
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.services.front_usage import used
from tests.support.waiting import soon, until

from windlass.gateway.inference.engines import aborting
from windlass.inference_api.routes import ABORT

PATH = "/v1/chat/completions"
# Read by the byte, and longer than what the engine generates for it.
LONG: Any = [{"role": "user", "content": "word " * 1600}]
# Most of a minute's tokens: a slow machine has not given them back when they are looked at.
DEAR: Any = [{"role": "user", "content": "word " * 4000}]
HI: Any = [{"role": "user", "content": "the quick brown fox"}]
LIMIT = 6000


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    limits = {"tokens_per_minute": LIMIT}
    async with running_front(database_url, tmp_path / "data", limits=limits) as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address)
        yield engine


async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    await asyncio.Event().wait()
    return web.Response()


async def breaks_off(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json"})
    response.content_length = 1000
    await response.prepare(request)
    await response.write(b'{"id":')
    assert request.transport
    request.transport.abort()
    return response


async def tokens_left(http: httpx.AsyncClient) -> int:
    body = {"model": "toy", "messages": HI, "max_tokens": 1}
    return int((await http.post(PATH, json=body)).headers["x-ratelimit-remaining-tokens"])


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_leaves_before_an_answer_pays_an_estimate(
    front: Front, engine: Engine, streams: bool
) -> None:
    engine.handler = endless
    chats = front.openai().chat.completions
    asking = asyncio.create_task(chats.create(model="toy", messages=DEAR, stream=streams))
    await until(lambda: engine.requests)
    asking.cancel()
    async with soon(2):
        await engine.left.wait()
    counted = await used(front, 1)
    assert counted["input_tokens"] == len(engine.bodies[0]) // 4 or streams
    assert counted["input_tokens"] >= 2000
    assert counted["output_tokens"] <= 25 * 30
    assert counted["num_estimated_requests"] == counted["num_model_requests"] == 1
    engine.handler = None
    async with front.http() as http:
        assert await tokens_left(http) < LIMIT - 500


async def test_an_engine_that_does_not_abort_in_time_is_left(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborting, "ABORT_SECONDS", 1.0)
    told = asyncio.Event()

    async def deaf(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if request.path != ABORT:
            return await endless(request, body)
        told.set()
        return web.Response()

    async with running_engine() as engine:
        engine.handler = deaf
        front.board.pin("toy", engine.address, aborts=True)
        client = front.openai(default_headers={"x-request-id": "mine"})
        asking = asyncio.create_task(client.chat.completions.create(model="toy", messages=HI))
        await until(lambda: engine.requests)
        asking.cancel()
        async with soon(5):
            await told.wait()
            await engine.left.wait()
        (name,) = engine.requests[-1]["request_ids"]
        assert name.startswith("chatcmpl-req_")
        assert name.endswith(".mine")
        assert (await used(front, 1))["num_estimated_requests"] == 1


async def test_an_answer_that_breaks_off_is_estimated_and_a_refusal_costs_nothing(
    front: Front, engine: Engine
) -> None:
    async def refuses(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no"}}, status=400)

    async def no_usage(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"id": "c", "choices": [], "usage": {"prompt_tokens": "many"}})

    async def half_a_usage(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"id": "c", "choices": [], "usage": {"completion_tokens": 31}})

    chats = front.openai().chat.completions
    for number, (handler, error) in enumerate(
        ((refuses, openai.BadRequestError), (breaks_off, openai.InternalServerError))
    ):
        engine.handler = handler
        with pytest.raises(error):
            await chats.create(model="toy", messages=HI)
        counted = await used(front, number + 1)
        assert counted["num_estimated_requests"] == number
        assert (counted["input_tokens"] > 0) is (handler is breaks_off)
    engine.handler = no_usage
    await chats.create(model="toy", messages=HI)
    counted = await used(front, 3)
    assert counted["num_estimated_requests"] == 2
    engine.handler = half_a_usage
    await chats.create(model="toy", messages=HI)
    half = await used(front, 4)
    assert half["num_estimated_requests"] == 3
    assert half["output_tokens"] == counted["output_tokens"] + 31
    assert half["input_tokens"] > counted["input_tokens"]


async def test_cached_and_reasoning_tokens_are_kept_apart_within_their_bounds(
    front: Front, engine: Engine
) -> None:
    details: dict[str, Any] = {}

    async def thinks(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        usage = {**stand.usage(7, 3), **details}
        if not body.get("stream"):
            return web.json_response({"id": "c", "choices": [{"text": "abc" * 9}], "usage": usage})
        response = await stand.begin(request)
        await response.write(stand.sse(stand.chunk("one", usage=usage)))
        await response.write(b"data: [DONE]\n\n")
        return response

    engine.handler = thinks
    chats = front.openai().chat.completions
    # What no engine can mean is bounded, or nothing.
    for cached, reasoning in ((4, 2), (10**12, 10**12), (-5, "x")):
        details["prompt_tokens_details"] = {"cached_tokens": cached}
        details["completion_tokens_details"] = {"reasoning_tokens": reasoning}
        await chats.create(model="toy", messages=HI)
        async for _ in await chats.create(model="toy", messages=HI, stream=True):
            pass
    counted = await used(front, 6)
    assert (counted["input_tokens"], counted["output_tokens"]) == (42, 18)
    assert counted["input_cached_tokens"] == 2 * (4 + 7 + 0)
    assert counted["output_reasoning_tokens"] == 2 * (2 + 3 + 0)
    assert counted["num_estimated_requests"] == 0


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """The built-in engine with a model that takes some milliseconds for a token."""
    model = make_model(tmp_path_factory.mktemp("slow") / "model", hidden=256, layers=8)
    with running_builtin(model) as running:
        yield running


@pytest.mark.torch
async def test_a_cut_request_costs_what_the_engine_has_counted(
    database_url: str, tmp_path: Path, slow: RunningEngine
) -> None:
    async def so_far() -> tuple[int, int]:
        """Tokens that the engine has read and written, by itself."""
        names = ("prompt_tokens_total", "generated_tokens_total")
        found = [await asyncio.to_thread(slow.metric, name) for name in names]
        return int(found[0]), int(found[1])

    async with running_front(database_url, tmp_path / "data") as front:
        front.board.pin("toy", slow.endpoint, aborts=True)
        client = front.openai()
        cut = (
            ("chat", client.chat.completions.create(model="toy", messages=HI, max_tokens=400)),
            (
                "completion",
                client.completions.create(model="toy", prompt=["a", "bc"], max_tokens=400),
            ),
            ("chat", _streamed(client, max_tokens=400)),
        )
        seen = {"chat": (0, 0, 0), "completion": (0, 0, 0)}
        for kind, call in cut:
            before = await so_far()
            asking = asyncio.ensure_future(call)

            async def goes_on(before: tuple[int, int] = before) -> bool:
                return (await so_far())[1] > before[1] + 8

            await until(goes_on)
            asking.cancel()
            counted = await used(front, seen[kind][0] + 1, kind=kind)
            assert counted["num_estimated_requests"] == 0
            names = ("num_model_requests", "input_tokens", "output_tokens")
            requests, read, written = (counted[name] for name in names)
            now = await so_far()
            assert (read - seen[kind][1], written - seen[kind][2]) == (
                now[0] - before[0],
                now[1] - before[1],
            )
            assert now[1] - before[1] < 400, "it was cut"
            seen[kind] = (requests, read, written)


async def _streamed(client: openai.AsyncOpenAI, *, max_tokens: int) -> None:
    stream = await client.chat.completions.create(
        model="toy", messages=HI, max_tokens=max_tokens, stream=True
    )
    async for _ in stream:
        pass
