"""Contents of an informer after any behaviour of the server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.support.fakes.kube_api import Stream, Watched, kube_api, listed, pod, refused, status
from tests.support.waiting import PATIENCE, until

from windlass.core.backoff import Backoff
from windlass_agent.kube import Informer
from windlass_agent.kube.resources import PODS


@pytest.fixture(autouse=True)
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that no test has to sit out."""

    async def pause(self: Backoff) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Backoff, "pause", pause)


class Reader:
    """An informer's reader, who waits for a state and not for time."""

    def __init__(self) -> None:
        self.changes = 0
        self._changed = asyncio.Event()
        self.informer: Informer[str]

    def changed(self) -> None:
        self.changes += 1
        self._changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def shows(self, **names: str) -> None:
        wanted = {f"team/{name}": version for name, version in names.items()}
        await self.until(lambda: dict(self.informer.items) == wanted)


def _version(item: dict[str, dict[str, str]]) -> str | None:
    if "hidden" in item["metadata"].get("labels", {}):
        return None
    return item["metadata"]["resourceVersion"]


@asynccontextmanager
async def informed(server: Watched) -> AsyncIterator[Reader]:
    async with kube_api(server.handle) as kube:
        reader = Reader()
        path = PODS.path("team")
        reader.informer = Informer(kube, path, trim=_version, changed=reader.changed)
        running = asyncio.create_task(reader.informer.run())
        try:
            yield reader
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _next(server: Watched, version: str) -> Stream:
    async with asyncio.timeout(PATIENCE):
        stream = await server.streams.get()
    assert stream.version == version
    return stream


async def test_it_follows_what_changes() -> None:
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1), pod("b", 2), version=5))
    async with informed(server) as reader:
        stream = await _next(server, "5")
        await reader.shows(a="1", b="2")
        assert reader.informer.synced.is_set()
        stream.event("ADDED", pod("c", 6))
        stream.event("MODIFIED", pod("a", 7))
        stream.event("DELETED", pod("b", 8))
        await reader.shows(a="7", c="6")


async def test_what_is_trimmed_away_is_left_out() -> None:
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1), pod("b", 2, hidden="yes"), version=5))
    async with informed(server) as reader:
        stream = await _next(server, "5")
        await reader.shows(a="1")
        before = reader.changes
        stream.event("MODIFIED", pod("b", 6, hidden="yes"))
        stream.event("MODIFIED", pod("a", 7, hidden="yes"))
        await reader.shows()
        assert reader.changes == before + 1


async def test_after_a_clean_end_it_goes_on_from_the_last_version() -> None:
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1), version=5))
    async with informed(server) as reader:
        stream = await _next(server, "5")
        stream.event("MODIFIED", pod("a", 6))
        stream.bookmark(9)
        stream.end()
        stream = await _next(server, "9")
        stream.event("MODIFIED", pod("a", 10))
        await reader.shows(a="10")
        assert server.listings == 1


async def test_a_cut_stream_goes_on_from_the_last_whole_event() -> None:
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1), version=5))
    async with informed(server) as reader:
        stream = await _next(server, "5")
        stream.event("MODIFIED", pod("a", 6))
        await reader.shows(a="6")
        stream.raw(b'{"type":"MODIFIED","obj')
        stream.cut()
        await _next(server, "6")


async def test_it_lists_anew_when_its_version_has_expired() -> None:
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1), pod("b", 2), version=5))
    async with informed(server) as reader:
        stream = await _next(server, "5")
        # What happened meanwhile is told by no event: `b` went, `c` came.
        server.lists.put_nowait(listed(pod("a", 8), pod("c", 7), version=20))
        stream.event("ERROR", status(410, "Expired", "too old resource version: 5 (20)"))
        stream.end()
        await reader.shows(a="8", c="7")
        await _next(server, "20")


async def test_after_silence_it_lists_anew() -> None:
    """Of a version that lies in the future a server says nothing, and so loses changes."""
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1000), version=1000))
    async with informed(server) as reader:
        stream = await _next(server, "1000")
        server.lists.put_nowait(listed(pod("a", 3), version=4))
        stream.end()
        await reader.shows(a="3")
        await _next(server, "4")


async def test_a_version_that_goes_backwards_is_not_followed() -> None:
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1000), version=1000))
    async with informed(server) as reader:
        stream = await _next(server, "1000")
        server.lists.put_nowait(listed(pod("a", 3), version=4))
        stream.bookmark(4)
        await reader.shows(a="3")
        await _next(server, "4")


@pytest.mark.parametrize(
    "answer",
    [
        lambda: refused(500, "InternalError", "etcdserver: request timed out"),
        lambda: refused(504, "Timeout", "Too large resource version: 9, current: 4"),
        lambda: refused(429, "TooManyRequests"),
        lambda: refused(401, "Unauthorized"),
        lambda: refused(410, "Expired"),
        lambda: web.Response(text="<html>"),
    ],
)
async def test_a_refused_list_is_tried_again(answer: Callable[[], web.Response]) -> None:
    server = Watched()
    server.lists.put_nowait(answer())
    server.lists.put_nowait(answer())
    server.lists.put_nowait(listed(pod("a", 1), version=5))
    async with informed(server) as reader:
        await reader.shows(a="1")


async def test_what_was_there_stays_while_the_server_is_away() -> None:
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1), version=5))
    async with informed(server) as reader:
        stream = await _next(server, "5")
        await reader.shows(a="1")
        stream.cut()
        server.lists.put_nowait(refused(503, "ServiceUnavailable"))
        async with asyncio.timeout(PATIENCE):
            await until(lambda: server.listings >= 3)
        assert dict(reader.informer.items) == {"team/a": "1"}
        server.lists.put_nowait(listed(pod("a", 2), version=6))
        await reader.shows(a="2")


async def test_a_kind_that_is_not_served_is_said_to_be_so() -> None:
    server = Watched()
    server.lists.put_nowait(refused(404, "NotFound", "the server could not find it"))
    async with informed(server) as reader:
        await reader.until(lambda: reader.informer.refused is not None)
        assert not reader.informer.synced.is_set()
        server.lists.put_nowait(listed(pod("a", 1), version=5))
        await reader.shows(a="1")
        assert reader.informer.refused is None


async def test_what_was_shown_is_not_gone_because_it_is_refused() -> None:
    """A server that starts has not read yet who may look."""
    server = Watched()
    server.lists.put_nowait(listed(pod("a", 1), version=5))
    async with informed(server) as reader:
        stream = await _next(server, "5")
        server.lists.put_nowait(refused(403, "Forbidden"))
        stream.end()
        await reader.until(lambda: reader.informer.refused is not None)
        assert dict(reader.informer.items) == {"team/a": "1"}
        server.lists.put_nowait(listed(pod("a", 2), version=6))
        await reader.shows(a="2")
        assert reader.informer.refused is None
