"""One exchange for each connection, however its bytes are cut; both sides are in memory.

The API server is a script, the stream a pair of queues: real ones stand in
tests/integration/tunnel/test_tunnel.py.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import PATIENCE, until
from tests.unit.tunnel.test_byte_stream import everything, streams

from windlass.api.sessions.v1.sessions_pb2 import (
    ACCESS_LEVEL_EDITOR,
    ACCESS_LEVEL_UNSPECIFIED,
    ACCESS_LEVEL_VIEWER,
    KubernetesTarget,
)
from windlass.tunnel.byte_stream import broken
from windlass.tunnel.http1 import RequestHead, parse_request
from windlass.tunnel.http1_bodies import MalformedHttp
from windlass_agent.kube.access import Access
from windlass_agent.namespaces.controller import Accounts
from windlass_agent.tunnel import exchange as exchange_module
from windlass_agent.tunnel import kubernetes as kubernetes_module
from windlass_agent.tunnel.exchange import TunnelExchange
from windlass_agent.tunnel.kubernetes import KubernetesApi
from windlass_agent.tunnel.refusal import TargetRefused


class Script:
    """A socket that answers what it is told, once the request is there."""

    def __init__(self, *answers: bytes, ends: bool = False, body: int = 0):
        self.answers = list(answers)
        self.body = body
        self.ends = ends
        self.got = bytearray()
        self.state = "open"
        self.passed = 0
        self._pass: Callable[[bytes], bool] | None = None
        self._more = asyncio.Event()

    @property
    def idle(self) -> bool:
        return self.state == "open"

    async def read(self) -> bytes:
        while b"\r\n\r\n" not in self.got or len(self.got) < self.body:
            await self._wait()
        while self.answers:
            # Pieces come in turns of the loop, in which others read what was sent.
            for _ in range(3):
                await asyncio.sleep(0)
            answer = self.answers.pop(0)
            if self._pass is None or not self._pass(answer):
                return answer
            self.passed += 1
        while not self.ends and self.state == "open":
            await self._wait()
        return b""

    def pass_on(self, take: Callable[[bytes], bool] | None) -> None:
        self._pass = take

    async def _wait(self) -> None:
        await self._more.wait()
        self._more.clear()

    async def write(self, data: bytes) -> None:
        if self.state != "open":
            raise broken()
        self.got += data
        self._more.set()

    async def close_write(self) -> None:
        self.ends = True
        self._more.set()

    def abort(self, error: Exception | None = None) -> None:
        self.state = "aborted"
        self._more.set()

    def close(self) -> None:
        self.state = "closed"
        self._more.set()


class Pool:
    def __init__(self, *fresh: Script):
        self.kept: list[Script] = []
        self._fresh = list(fresh)

    def give(self, socket: Any) -> None:
        self.kept.append(socket)

    async def fresh(self) -> Any:
        return self._fresh.pop(0)


async def same_head(request: RequestHead) -> bytes:
    return b"%b %b HTTP/1.1\r\n\r\n" % (request.method.encode(), request.target.encode())


class Play:
    """An exchange with a script, and the asking side."""

    def __init__(self, socket: Script, *, pool: Pool | None = None, used: bool = False):
        self.socket = socket
        self.pool = pool or Pool()
        fakes: tuple[Any, Any] = (self.pool, socket)
        self.exchange = TunnelExchange(*fakes, used, same_head)
        self.asking, self.stream = streams()

    async def run(self, *asked: bytes, ends: bool = True) -> bytes:
        """The bytes that the asking side receives; raises the exchange's failure."""

        async def ask() -> bytes:
            for piece in asked:
                await self.asking.write(piece)
            answer = await everything(self.asking)
            if ends:
                await self.asking.close_write()
            return answer

        async def serve() -> None:
            try:
                await self.exchange.serve(self.stream)
                await self.stream.finished()
            finally:
                self.exchange.close()
                self.stream.abort()
                self.asking.abort()

        async with asyncio.timeout(PATIENCE):
            answer, served = await asyncio.gather(ask(), serve(), return_exceptions=True)
        if isinstance(served, BaseException):
            raise served
        assert isinstance(answer, bytes)
        return answer


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The same bytes, cut at some places."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [
        piece
        for start, end in zip([0, *places], [*places, len(data)], strict=True)
        if (piece := data[start:end])
    ]


CUTS = st.lists(st.integers(0, 10_000), max_size=8)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 102 Processing\r\n\r\n" + OK
NONE = b"HTTP/1.1 204 No Content\r\n\r\n"


@settings(max_examples=60)
@given(st.binary(max_size=300), CUTS, CUTS, st.sampled_from([OK, CHUNKED, CONTINUED, NONE]))
def test_it_is_the_same_however_it_is_cut(
    body: bytes, asked: list[int], answered: list[int], answer: bytes
) -> None:
    async def run() -> None:
        head = b"POST /x HTTP/1.1\r\n\r\n"
        play = Play(Script(*pieces(answer, answered), body=len(head + body)))
        request = b"POST /x HTTP/1.1\r\nHost: k\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        assert await play.run(*pieces(request, asked)) == answer
        assert bytes(play.socket.got) == head + body
        assert play.pool.kept == [play.socket]

    asyncio.run(run())


GET = b"GET /x HTTP/1.1\r\nHost: k\r\n\r\n"


@settings(max_examples=30)
@given(st.binary(min_size=1, max_size=50), CUTS)
def test_nothing_beyond_the_request_ever_passes(more: bytes, cuts: list[int]) -> None:
    async def run() -> None:
        play = Play(Script(OK))
        with contextlib.suppress(MalformedHttp):
            await play.run(*pieces(GET + more, cuts))
        assert bytes(play.socket.got) == b"GET /x HTTP/1.1\r\n\r\n"

    asyncio.run(run())


async def test_a_body_passes_without_a_turn_of_its_reader() -> None:
    head, *chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"2\r\nhi\r\n"] * 9
    play = Play(Script(head, *chunks, b"0\r\n\r\n"))
    assert await play.run(GET) == b"".join((head, *chunks, b"0\r\n\r\n"))
    assert play.socket.passed
    # Where the connection may rest, nobody takes what it says.
    assert play.pool.kept == [play.socket]
    assert play.socket._pass is None


async def test_what_follows_a_101_passes_both_ways() -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nfirst"
    play = Play(Script(switching, b"second"))
    head = b"GET /x HTTP/1.1\r\nHost: k\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"

    async def ask() -> bytes:
        await play.asking.write(head + b"raw ")
        await play.asking.write(b"bytes")
        answer = b""
        while not answer.endswith(b"second"):
            answer += await play.asking.read()
        await play.asking.close_write()
        return answer + await everything(play.asking)

    async with asyncio.timeout(PATIENCE):
        answer, _ = await asyncio.gather(ask(), play.exchange.serve(play.stream))
    assert answer == switching + b"second"
    assert play.socket.got.endswith(b"\r\n\r\nraw bytes")
    play.exchange.close()
    assert not play.pool.kept


async def test_an_upgrade_that_is_not_made_lets_nothing_through() -> None:
    play = Play(Script(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
    head = b"GET /x HTTP/1.1\r\nHost: k\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    with contextlib.suppress(MalformedHttp):
        await play.run(head + b"GET /secrets HTTP/1.1\r\n\r\n")
    assert b"secrets" not in play.socket.got


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"nonsense\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "no HTTP"],
)
async def test_an_answer_that_is_not_whole_is_no_answer(answer: bytes) -> None:
    play = Play(Script(*([answer] if answer else []), ends=True))
    with pytest.raises((MalformedHttp, type(broken()))):
        await play.run(GET)
    assert play.socket.state == "aborted"
    assert not play.pool.kept


async def test_an_answer_until_the_close_is_whole_and_closes() -> None:
    play = Play(Script(b"HTTP/1.1 200 OK\r\n\r\nall ", b"of it", ends=True))
    assert (await play.run(GET)).endswith(b"all of it")


async def test_a_connection_that_will_close_is_not_kept() -> None:
    play = Play(Script(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
    await play.run(GET)
    assert not play.pool.kept
    assert play.socket.state == "closed"


async def test_a_kept_connection_that_was_closed_is_replaced_once() -> None:
    fresh = Script(OK)
    play = Play(Script(ends=True), pool=Pool(fresh), used=True)
    assert await play.run(GET) == OK
    assert play.pool.kept == [fresh]


async def test_but_not_for_what_may_not_be_asked_twice() -> None:
    play = Play(Script(ends=True), pool=Pool(Script(OK)), used=True)
    with pytest.raises(type(broken())):
        await play.run(b"POST /x HTTP/1.1\r\nHost: k\r\nContent-Length: 1\r\n\r\n1")


async def test_whoever_does_not_hang_up_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "LINGER_SECONDS", 0.05)
    play = Play(Script(OK))
    with pytest.raises(type(broken())):
        await play.run(GET, ends=False)
    # The answer was whole, so the socket serves on.
    assert play.pool.kept == [play.socket]


async def test_a_stream_that_is_cut_takes_the_socket_with_it() -> None:
    play = Play(Script())

    async def leave() -> None:
        await play.asking.write(GET)
        await until(lambda: play.socket.got)
        play.stream.abort()

    async with asyncio.timeout(PATIENCE):
        results = await asyncio.gather(
            leave(), play.exchange.serve(play.stream), return_exceptions=True
        )
    assert isinstance(results[1], type(broken()))
    assert play.socket.state == "aborted"


class Opened:
    """Request as `KubernetesApi` would send it."""

    def __init__(self, api: KubernetesApi):
        self.api = api

    async def head(self, raw: bytes, target: KubernetesTarget) -> bytes:
        exchange = await self.api.open(target)
        return bytes(await exchange._head(parse_request(raw)))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    async def authorization() -> str:
        return "Bearer ours"

    async def connect(*_: Any, **__: Any) -> Any:
        return Script()

    monkeypatch.setattr(kubernetes_module, "connect", connect)
    access = Access("https://api.test:6443/prefix", None, authorization)
    known = {"team": Accounts("viewer-of-team", "editor-of-team")}
    return Opened(KubernetesApi(access, known.get))


TARGET = KubernetesTarget(namespace="team", level=ACCESS_LEVEL_VIEWER, user="ann")
NAMES = st.from_regex(
    r"(?i)(impersonate-|x-remote-|x-forwarded-|proxy-)[a-z-]{0,12}", fullmatch=True
)
CLAIMED = st.one_of(NAMES, st.sampled_from(["Authorization", "authorization", "Cookie", "Via-X"]))


@settings(max_examples=60)
@given(st.lists(CLAIMED, max_size=6, unique_by=str.lower))
def test_only_the_agent_says_who_asks(names: list[str]) -> None:
    async def run() -> None:
        async def authorization() -> str:
            return "Bearer ours"

        api = KubernetesApi(
            Access("http://api.test", None, authorization),
            lambda _: Accounts("viewer-of-team", "editor-of-team"),
        )
        request = b"GET /x HTTP/1.1\r\nHost: k\r\n%b\r\n" % b"".join(
            b"%b: claimed\r\n" % name.encode() for name in names
        )
        sent = api._head(parse_request(request), "viewer-of-team", "ann", "Bearer ours").decode()
        lines = sent.lower().split("\r\n")
        assert lines.count("authorization: bearer ours") == 1
        assert lines.count("impersonate-user: viewer-of-team") == 1
        kept = [line for line in lines if line.endswith(": claimed")]
        assert set(kept) <= {"via-x: claimed"}

    asyncio.run(run())


async def test_the_head_is_the_agent_s_own(opened: Opened) -> None:
    raw = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: k\r\nAccept: */*\r\n\r\n"
    head = await opened.head(raw, TARGET)
    assert head.split(b"\r\n") == [
        b"GET /prefix/api/v1/pods?watch=1 HTTP/1.1",
        b"Host: api.test:6443",
        b"Impersonate-User: viewer-of-team",
        b"Authorization: Bearer ours",
        b"Impersonate-Extra-Windlass-User: ann",
        b"accept: */*",
        b"",
        b"",
    ]


async def test_a_user_cannot_write_a_header(opened: Opened) -> None:
    target = KubernetesTarget(namespace="team", level=ACCESS_LEVEL_EDITOR, user="a\r\nX: y\u00e9")
    head = await opened.head(GET, target)
    assert b"Impersonate-Extra-Windlass-User: a??X:?y?\r\n" in head
    assert b"Impersonate-User: editor-of-team\r\n" in head


async def test_a_subprotocol_that_is_a_credential_is_refused(opened: Opened) -> None:
    raw = GET[:-2] + b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.eA\r\n\r\n"
    with pytest.raises(MalformedHttp):
        await opened.head(raw, TARGET)


@pytest.mark.parametrize(
    "target",
    [
        KubernetesTarget(namespace="kube-system", level=ACCESS_LEVEL_VIEWER),
        KubernetesTarget(namespace="team", level=ACCESS_LEVEL_UNSPECIFIED),
    ],
)
async def test_other_accounts_are_refused(opened: Opened, target: KubernetesTarget) -> None:
    with pytest.raises(TargetRefused):
        await opened.api.open(target)
