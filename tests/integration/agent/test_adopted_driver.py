"""The agent's way to serving stacks of others: a driver, its sockets, and stacks that misbehave."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.environments.postgres import reachable_folder
from tests.support.fakes.serving_stack import FakeStack, running_stack, streaming
from tests.support.waiting import PATIENCE, soon, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference_api.errors import ApiError
from windlass_agent.engines.adopted import forwarder
from windlass_agent.engines.adopted import stack as stack_client
from windlass_agent.executors import adopted
from windlass_agent.executors.adopted import AdoptedDriver

CHAT = "/v1/chat/completions"
KEY = "key-of-the-stack"


def chunk(text: str, **more: Any) -> bytes:
    document = {"id": "c", "model": "theirs", "choices": [{"index": 0, "delta": {"content": text}}]}
    return b"data: " + json.dumps(document | more).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class Adopted:
    """A driver with one model of a stack."""

    def __init__(self, driver: AdoptedDriver, stack: FakeStack):
        self.driver = driver
        self.stack = stack
        self.generation = 0

    async def want(self, *, desired: Any = pb.DESIRED_STATE_RUNNING, **spec: Any) -> None:
        self.generation += 1
        found = pb.ServingStack(
            **{"url": self.stack.url, "model": "theirs", "dialect": "openai", "key": KEY} | spec
        )
        workload = pb.Workload(id="eng-1", generation=self.generation, desired=desired)
        if desired == pb.DESIRED_STATE_RUNNING:
            workload.engine.CopyFrom(pb.EngineWorkload(model="ours", stack=found))
        await self.driver.apply(workload)

    def status(self) -> pb.WorkloadStatus | None:
        return next(iter(self.driver.statuses()), None)

    async def reaches(self, phase: Any, message: str = "") -> pb.WorkloadStatus:
        def there() -> bool:
            found = self.status()
            return found is not None and found.phase == phase and message in found.message

        async with soon(20):
            await until(there)
        found = self.status()
        assert found is not None
        return found

    def session(self) -> aiohttp.ClientSession:
        found = self.status()
        assert found is not None
        path = found.endpoint.removeprefix("unix://")
        return aiohttp.ClientSession("http://engine", connector=aiohttp.UnixConnector(path=path))

    async def ask(self, path: str = CHAT, **body: Any) -> tuple[int, dict[str, Any]]:
        asked = {"model": "ours", **body}
        async with self.session() as session, session.post(path, json=asked) as response:
            return response.status, await response.json()

    async def stream(self, **body: Any) -> list[Any]:
        """The data of every event, decoded where it is JSON."""
        async with self.session() as session:
            asked = {"model": "ours", "stream": True, **body}
            async with session.post(CHAT, json=asked) as response:
                assert response.status == 200, await response.text()
                text = (await response.read()).decode()
        events = [one.removeprefix("data: ") for one in text.split("\n\n") if one]
        return [json.loads(one) if one.startswith("{") else one for one in events]


@pytest.fixture
async def stack() -> AsyncIterator[FakeStack]:
    async with running_stack() as made:
        yield made


@pytest.fixture
async def made(stack: FakeStack, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Adopted]:
    monkeypatch.setattr(adopted, "STARTING_PROBE_SECONDS", 0.05)
    monkeypatch.setattr(adopted, "RUNNING_PROBE_SECONDS", 0.05)
    with reachable_folder() as folder:
        driver = AdoptedDriver(sockets=folder, drain_seconds=10, changed=lambda: None)
        yield Adopted(driver, stack)
        await driver.close()
        assert not list(folder.iterdir())


@pytest.fixture
async def ready(made: Adopted) -> Adopted:
    await made.want()
    await made.reaches(pb.PHASE_RUNNING)
    return made


async def test_it_answers_as_soon_as_the_stack_has_the_model(made: Adopted) -> None:
    made.stack.models = [{"id": f"m{number}"} for number in range(9)]
    await made.want(capabilities=pb.EngineCapabilities(max_concurrency=3, embeddings=True))
    waiting = await made.reaches(pb.PHASE_STARTING, "no model 'theirs'; it has m0, m1")
    assert not waiting.endpoint
    made.stack.models = [{"id": "theirs", "max_model_len": 4096}]
    status = await made.reaches(pb.PHASE_RUNNING)
    said = status.capabilities
    assert (said.max_concurrency, said.context_length, said.embeddings) == (3, 4096, True)
    status_code, _ = await made.ask("/v1/embeddings", input="a")
    assert status_code == 200
    assert made.stack.keys == [f"Bearer {KEY}"]


RANKS = ["/v1/rerank", "/v1/score"]


async def test_it_says_which_ranks_it_has_and_passes_them_on(made: Adopted) -> None:
    async def ranks(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"model": body["model"], "path": request.path, "results": []})

    made.stack.handler = ranks
    await made.want(capabilities=pb.EngineCapabilities(routes=RANKS))
    status = await made.reaches(pb.PHASE_RUNNING)
    assert list(status.capabilities.routes) == RANKS
    for path in RANKS:
        code, answer = await made.ask(path, query="a", documents=["b"])
        assert (code, answer["model"], answer["path"]) == (200, "ours", path)
        assert answer["usage"]["estimated"] is True
    assert [one["model"] for one in made.stack.asked] == ["theirs", "theirs"]


async def test_a_request_has_its_id_and_trace_at_the_stack(ready: Adopted) -> None:
    seen: list[dict[str, str]] = []

    async def look(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response({"model": body["model"], "choices": []})

    ready.stack.handler = look
    passed = {"x-request-id": "req-1", "traceparent": "00-1", "tracestate": "a=1"}
    headers = passed | {"authorization": "Bearer x", "baggage": "b"}
    async with ready.session() as session:
        (await session.post(CHAT, json={"model": "ours"}, headers=headers)).close()
    await ready.ask()
    first, second = seen
    assert passed.items() <= first.items()
    assert first["authorization"] == f"Bearer {KEY}"
    assert not {"baggage"} & {*first, *second}
    assert "traceparent" not in second


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_stack_without_a_list_is_taken_at_its_word(made: Adopted, status: int) -> None:
    made.stack.list_status = status
    await made.want()
    await made.reaches(pb.PHASE_RUNNING)


@pytest.mark.parametrize(
    ("models", "status", "said"),
    [("no list", 200, "lists no models"), ([7, None], 200, "has none"), ([], 500, "status 500")],
)
async def test_a_list_that_is_none_is_no_model(
    made: Adopted, models: Any, status: int, said: str
) -> None:
    made.stack.models, made.stack.list_status = models, status
    await made.want()
    await made.reaches(pb.PHASE_STARTING, said)


async def test_another_key_is_used_at_once_and_open_streams_go_on(ready: Adopted) -> None:
    release = asyncio.Event()

    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(chunk("a"))
        await release.wait()
        await response.write(chunk("b") + DONE)
        return response

    ready.stack.handler = slow
    stream = asyncio.create_task(ready.stream())
    await until(lambda: len(ready.stack.asked) == 1)
    ready.stack.key = "another"
    await ready.reaches(pb.PHASE_STARTING, "refuses its key (401)")
    await ready.want(key="another")
    await ready.reaches(pb.PHASE_RUNNING)
    ready.stack.handler = None
    await ready.ask()
    assert ready.stack.keys == [f"Bearer {KEY}", "Bearer another"]
    release.set()
    texts = [one["choices"][0]["delta"]["content"] for one in (await stream)[:2]]
    assert texts == ["a", "b"]


async def test_one_that_should_end_ends_after_its_requests(ready: Adopted) -> None:
    release = asyncio.Event()

    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await release.wait()
        return web.json_response({"choices": []})

    ready.stack.handler = slow
    asking = asyncio.create_task(ready.ask())
    await until(lambda: bool(ready.stack.asked))
    await ready.want(desired=pb.DESIRED_STATE_DELETED)
    await ready.reaches(pb.PHASE_STOPPING)
    assert not asking.done()
    release.set()
    assert (await asking)[0] == 200
    async with soon(10):
        await until(lambda: not ready.driver.statuses())
    assert not ready.driver.knows("eng-1")


async def test_what_nobody_knows_may_be_deleted(made: Adopted) -> None:
    await made.want(desired=pb.DESIRED_STATE_DELETED)
    assert not made.driver.statuses()


async def test_a_certificate_that_is_none_fails_until_there_is_another(made: Adopted) -> None:
    await made.want(ca="-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----")
    await made.reaches(pb.PHASE_FAILED, "no certificate")
    await made.want()
    await made.reaches(pb.PHASE_RUNNING)
    await made.want(ca="nothing")
    await made.reaches(pb.PHASE_FAILED, "no certificate")
    await made.want()
    await made.reaches(pb.PHASE_RUNNING)


async def test_who_redirects_gets_no_key(ready: Adopted, stack: FakeStack) -> None:
    async with running_stack() as other:

        async def elsewhere(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(other.url + CHAT)

        stack.handler = elsewhere
        status, answer = await ready.ask()
        assert (status, answer["error"]["code"]) == (502, "engine_failed")
        assert not other.asked


async def _endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(chunk("a"))
    await asyncio.Event().wait()
    return response


async def test_a_client_that_leaves_leaves_the_stack_too(ready: Adopted) -> None:
    ready.stack.handler = _endless
    for streams in (False, True):
        ready.stack.left.clear()
        ready.stack.asked.clear()
        asking = asyncio.create_task(ready.ask(stream=streams))
        await until(lambda: ready.stack.asked)
        asking.cancel()
        async with asyncio.timeout(PATIENCE):
            await ready.stack.left.wait()


async def test_a_stream_passes_in_any_pieces(ready: Adopted) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    whole = b": here\r\n\r\n" + chunk("a").replace(b"\n", b"\r\n") + chunk("b")
    whole += chunk("", choices=[], usage=usage) + DONE
    ready.stack.handler = streaming(*(whole[at : at + 1] for at in range(len(whole))))
    comment, *chunks, last, done = await ready.stream(stream_options={"include_usage": True})
    assert (comment, done) == (":", "[DONE]")
    assert [one["usage"]["completion_tokens"] for one in chunks] == [1, 2]
    assert all(one["usage"]["estimated"] and one["model"] == "ours" for one in chunks)
    assert last["usage"] == usage
    assert ready.stack.asked[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("ends", [True, False])
async def test_a_stream_that_breaks_off_ends_with_an_error(ready: Adopted, ends: bool) -> None:
    ready.stack.handler = streaming(chunk("a"), chunk("b"), ends=ends)
    *chunks, last = await ready.stream()
    assert last["error"]["code"] == "engine_failed"
    assert len(chunks) <= 2


@pytest.mark.parametrize(
    "wrong",
    [
        b"data: nonsense\n\n",
        b'data: {"error": {"message": "theirs fell over"}}\n\n',
        b"data: 3\n\n",
    ],
)
async def test_what_is_no_chunk_ends_a_stream_with_an_error(ready: Adopted, wrong: bytes) -> None:
    ready.stack.handler = streaming(chunk("a"), wrong, chunk("b"), DONE)
    first, last = await ready.stream()
    assert first["choices"]
    assert last["error"]["code"] == "engine_failed"
    assert "fell over" not in last["error"]["message"]


async def test_answers_without_end_are_not_kept(
    ready: Adopted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "MAX_EVENT_BYTES", 1000)
    monkeypatch.setattr(forwarder, "MAX_ANSWER_BYTES", 1000)
    ready.stack.handler = streaming(chunk("a"), b"data: " + b"x" * 5000)
    *_, error = await ready.stream()
    assert error["error"]["message"].endswith("too long.")

    async def long(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"choices": ["x" * 5000]})

    ready.stack.handler = long
    status, answer = await ready.ask()
    assert (status, answer["error"]["code"]) == (502, "engine_failed")


async def test_only_the_engines_routes_and_model_are_passed_on(ready: Adopted) -> None:
    for path in ("/v1/load_lora_adapter", "/sleep", "/metrics", "/v1/models"):
        assert (await ready.ask(path))[0] == 404
    status, answer = await ready.ask(model="theirs")
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert not ready.stack.asked


async def test_what_is_hidden_in_a_comment_is_no_event(ready: Adopted) -> None:
    hidden = b': a\rdata: {"model": "theirs", "choices": []}\r\r'
    ready.stack.handler = streaming(hidden, b": b\n\n", chunk("a"), DONE, chunk("after"))
    events = await ready.stream()
    assert [one if isinstance(one, str) else one["model"] for one in events] == [
        "ours", ":", "ours", "ours", "[DONE]"
    ]  # fmt: skip


async def test_small_pieces_of_a_long_event_cost_little(
    ready: Adopted, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    class Counted(bytearray):
        def find(self, sub: Any, start: Any = 0, *_: Any) -> int:
            nonlocal looked
            looked += len(self) - start
            return bytearray.find(self, sub, start)

    monkeypatch.setattr(forwarder, "bytearray", Counted, raising=False)
    event = chunk("x" * 20_000)
    ready.stack.handler = streaming(*(event[at : at + 50] for at in range(0, len(event), 50)), DONE)
    await ready.stream()
    assert looked < 10 * len(event)


async def test_a_typed_address_that_can_be_none_is_told_and_mended(made: Adopted) -> None:
    await made.want(url="http://vllm..svc:8000")
    await made.reaches(pb.PHASE_STARTING, "does not answer")
    await made.want()
    await made.reaches(pb.PHASE_RUNNING)


async def test_a_probe_that_fails_otherwise_is_told_and_not_the_last(
    made: Adopted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(self: Any) -> int:
        raise RuntimeError("unforeseen")

    with monkeypatch.context() as patch:
        patch.setattr(stack_client.StackClient, "probe", fails)
        await made.want()
        await made.reaches(pb.PHASE_STARTING, "could not be asked")
    await made.reaches(pb.PHASE_RUNNING)


async def test_a_client_that_is_retired_within_a_probe_ends_that_first(
    stack: FakeStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        began.set()
        await release.wait()
        return web.json_response({"data": [{"id": "theirs"}]})

    monkeypatch.setattr(stack, "list_held", slow)
    spec = pb.ServingStack(url=stack.url, model="theirs")
    client = stack_client.StackClient(spec)
    probing = asyncio.create_task(client.probe())
    await began.wait()
    await client.retire()
    release.set()
    assert await probing == 0
    assert client.open == 0


async def test_an_event_of_several_lines_is_one(ready: Adopted) -> None:
    lines = json.dumps(json.loads(chunk("a")[6:]), indent=1).encode().split(b"\n")
    ready.stack.handler = streaming(b"".join(b"data: %b\n" % one for one in lines) + b"\n", DONE)
    first, *_, done = await ready.stream()
    assert (first["choices"][0]["delta"]["content"], done) == ("a", "[DONE]")


async def test_bodies_are_bounded_together(ready: Adopted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "MAX_HELD_BYTES", 2000)
    status, answer = await ready.ask(padding="x" * 2000)
    assert (status, answer["error"]["code"]) == (503, "engine_overloaded")
    assert (await ready.ask())[0] == 200
    monkeypatch.setattr(forwarder, "MAX_BODY_BYTES", 500)
    status, answer = await ready.ask(padding="x" * 600)
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


async def test_a_body_is_not_kept_while_its_answer_comes(
    ready: Adopted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "MAX_HELD_BYTES", 2000)
    ready.stack.handler = _endless
    body = {"model": "ours", "stream": True, "padding": "x" * 800}
    async with ready.session() as session:
        for _ in range(3):
            answer = await session.post(CHAT, json=body)
            assert answer.status == 200, await answer.text()
            await answer.content.readuntil(b"\n\n")


async def test_a_body_is_not_kept_until_its_answer_comes(
    ready: Adopted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "MAX_HELD_BYTES", 2000)
    asked, release = 0, asyncio.Event()

    async def thinks(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        await release.wait()
        return web.json_response({"choices": []})

    ready.stack.handler = thinks
    asking = []
    for _ in range(3):
        asking.append(asyncio.create_task(ready.ask(padding="x" * 800)))
        await until(lambda: asked, holds=lambda count: count == len(asking))
    release.set()
    assert {status for status, _ in await asyncio.gather(*asking)} == {200}


def test_a_model_holds_half_of_what_all_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "MAX_HELD_BYTES", 1000)
    held = forwarder.HeldBytes()
    with held.holding("greedy") as first, held.holding("greedy") as second:
        first(400)
        with pytest.raises(ApiError):
            second(101)
        second(100)
        with held.holding("modest") as other:
            other(500)
    with held.holding("greedy") as hold:
        hold(500)
    # What is sent to its end after the request has ended was given up then.
    hold(-500)
    assert held._held == 0


async def test_a_stack_that_went_away_is_503_and_then_starting(ready: Adopted) -> None:
    ready.stack.url = "http://127.0.0.1:9"
    session = ready.session()
    await ready.want()
    async with session, session.post(CHAT, json={"model": "ours"}) as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "stack_unavailable"
    await ready.reaches(pb.PHASE_STARTING, "at 127.0.0.1:9 does not answer")


def test_its_socket_is_short_whatever_the_workload(tmp_path: Path) -> None:
    async def made() -> str:
        driver = AdoptedDriver(sockets=tmp_path, drain_seconds=0, changed=lambda: None)
        spec = pb.EngineWorkload(model="ours", stack=pb.ServingStack(url="http://127.0.0.1:9"))
        workload = pb.Workload(id="e" * 120, desired=pb.DESIRED_STATE_RUNNING, engine=spec)
        await driver.apply(workload)
        (made,) = tmp_path.iterdir()
        await driver.close()
        return made.name

    assert len(asyncio.run(made())) < 24
