"""Streams that are followed for ever: pages joined, silence noticed, losses survived."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.db.paging import page_of, stream_pages
from windlass.core.errors import InvalidArgument, Unavailable
from windlass.core.rpc.following import Follower


class Call:
    """One stream of a scripted peer, which is silent once it has said everything."""

    def __init__(self, *said: pb.StatusDelta, silent: bool = True):
        self._said = said
        self._silent = silent
        self.cancelled = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[pb.StatusDelta]:
        for one in self._said:
            yield one
        if self._silent:
            await asyncio.Event().wait()

    def cancel(self) -> None:
        self.cancelled.set()


def delta(*names: str, snapshot: bool = False, more: bool = False) -> pb.StatusDelta:
    statuses = [pb.WorkloadStatus(workload_id=name) for name in names]
    return pb.StatusDelta(snapshot=snapshot, statuses=statuses, more=more)


async def follow(
    opened: Callable[[], Call], heard: list[pb.StatusDelta], count: int
) -> Follower[pb.StatusDelta]:
    """A follower that heard so much, and was then stopped."""
    done = asyncio.Event()

    def hear(message: pb.StatusDelta) -> None:
        heard.append(message)
        if len(heard) == count:
            done.set()

    follower = Follower("statuses", opened, hear, stale_seconds=0.2)
    with pytest.raises(Unavailable, match="has not begun"):
        await follower.check()
    task = asyncio.create_task(follower.run())
    async with asyncio.timeout(PATIENCE):
        await done.wait()
    await follower.check()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return follower


async def test_pages_are_heard_as_one_change() -> None:
    heard: list[pb.StatusDelta] = []
    call = Call(delta("a", snapshot=True, more=True), delta("b", more=True), delta("c"), delta("d"))
    await follow(lambda: call, heard, 2)
    first, second = ([one.workload_id for one in each.statuses] for each in heard)
    assert (first, second) == (["a", "b", "c"], ["d"])
    assert heard[0].snapshot


async def test_half_a_change_is_not_heard_when_its_stream_is_lost() -> None:
    heard: list[pb.StatusDelta] = []
    calls = iter([Call(delta("a", snapshot=True, more=True), silent=False), Call(delta("b"))])
    await follow(lambda: next(calls), heard, 1)
    assert [one.workload_id for one in heard[0].statuses] == ["b"]


async def test_a_stream_is_opened_again_when_what_it_asks_for_changes() -> None:
    heard: list[pb.StatusDelta] = []
    calls = [Call(delta("a")), Call(delta("b"))]
    left = iter(calls)

    async def hear(message: pb.StatusDelta) -> None:
        await asyncio.sleep(0)
        heard.append(message)
        if len(heard) == 1:
            follower.reopen()

    follower = Follower("statuses", lambda: next(left), hear, reconnect_seconds=60)
    follower.reopen()
    task = asyncio.create_task(follower.run())
    await until(lambda: len(heard) == 2)
    assert calls[0].cancelled.is_set()
    assert not calls[1].cancelled.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def complaint(follower: Follower[pb.StatusDelta]) -> str:
    """Returns why the follower is not ready; nothing where it is."""
    try:
        await follower.check()
    except Unavailable as error:
        return error.message
    return ""


async def test_a_silent_stream_is_opened_again_and_is_not_ready() -> None:
    heard: list[pb.StatusDelta] = []
    calls = [Call(delta("a")), Call(delta("b"))]
    left = iter(calls)
    follower = await follow(lambda: next(left), heard, 2)
    assert calls[0].cancelled.is_set()
    assert "silent" in await until(lambda: complaint(follower))


def test_changes_are_cut_into_pages_of_bytes() -> None:
    statuses = [pb.WorkloadStatus(workload_id="x" * 100) for _ in range(95)]
    pages = list(stream_pages(statuses, 1100))
    assert sum(len(page) for page, _ in pages) == 95
    assert all(pb.StatusDelta(statuses=page).ByteSize() <= 1100 for page, _ in pages)
    assert [more for _, more in pages] == [True] * (len(pages) - 1) + [False]
    assert list(stream_pages([], 10)) == [([], False)]
    assert len(list(stream_pages(statuses[:2], 10))) == 2, "what is larger goes alone"


def test_a_list_in_memory_has_pages() -> None:
    assert page_of("abcde", str, after="", limit=2) == (["a", "b"], True)
    assert page_of("abcde", str, after="b", limit=3) == (["c", "d", "e"], False)
    with pytest.raises(InvalidArgument, match="id of an item"):
        page_of("abcde", str, after="x", limit=3)
