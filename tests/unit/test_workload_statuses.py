"""Statuses are applied however others fail, and those that failed again later."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.workload_statuses import BATCH, MAX_RETRY_SECONDS, RETRY_SECONDS, StatusFollower


class Clusters:
    """Stands for the clusters service: a stream that says what it is given."""

    def __init__(self, *said: pb.StatusDelta):
        self._said = said
        self.opened = 0

    def WatchStatus(self, request: pb.WatchStatusRequest, **_: Any) -> "Clusters":
        self.opened += 1
        return self

    async def __aiter__(self) -> AsyncIterator[pb.StatusDelta]:
        for one in self._said:
            yield one
        await asyncio.Event().wait()

    def cancel(self) -> None:
        """Nothing is left to do: nobody is at the other end."""


class Rows:
    """What was applied; a status that is bad never is."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.bad: set[str] = set()
        self.tries = 0

    async def apply(self, statuses: Sequence[pb.WorkloadStatus]) -> None:
        self.tries += 1
        names = [one.workload_id for one in statuses]
        if self.bad.intersection(names):
            raise ValueError(names)
        self.applied += names


def delta(*names: str, more: bool = False) -> pb.StatusDelta:
    return pb.StatusDelta(statuses=[pb.WorkloadStatus(workload_id=one) for one in names], more=more)


def make(rows: Rows, *said: pb.StatusDelta) -> tuple[Clusters, StatusFollower]:
    clusters: Any = Clusters(*said)
    return clusters, StatusFollower("jobs", clusters, rows.apply)


async def test_one_that_fails_on_a_page_keeps_no_later_one_waiting() -> None:
    rows = Rows()
    rows.bad = {"bad"}
    clusters, statuses = make(rows, delta("bad", "a", more=True), delta("b"), delta("c"))
    running = asyncio.create_task(statuses.follower.run())
    await until(lambda: "c" in rows.applied)
    assert sorted(rows.applied) == ["a", "b", "c"]
    assert clusters.opened == 1
    await statuses.follower.check()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_one_that_failed_is_tried_again_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = Rows()
    rows.bad = {"bad"}
    _, statuses = make(rows)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    await statuses.take(delta("bad", "a"))
    assert (rows.applied, rows.tries) == (["a"], 3)
    for pause in (RETRY_SECONDS, 2 * RETRY_SECONDS, 4 * RETRY_SECONDS):
        await statuses.take(delta())
        now += pause
        before = rows.tries
        await statuses.take(delta())
        assert rows.tries == before + 1
    rows.bad.clear()
    now += MAX_RETRY_SECONDS
    await statuses.take(delta())
    assert rows.applied == ["a", "bad"]
    now += MAX_RETRY_SECONDS
    await statuses.take(delta())
    assert rows.applied == ["a", "bad"]


async def test_a_newer_status_takes_the_place_of_one_that_failed() -> None:
    rows = Rows()
    rows.bad = {"a"}
    _, statuses = make(rows)
    await statuses.take(delta("a"))
    rows.bad.clear()
    await statuses.take(delta("a"))
    await statuses.take(delta())
    assert rows.applied == ["a"]


async def test_many_are_applied_in_batches() -> None:
    rows = Rows()
    _, statuses = make(rows)
    names = [str(number) for number in range(2 * BATCH + 1)]
    await statuses.take(delta(*names))
    assert (rows.applied, rows.tries) == (names, 3)


async def test_those_that_fail_hold_up_the_stream_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As while the database is away, and each takes long to fail."""
    rows = Rows()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)

    async def slow(statuses: Sequence[pb.WorkloadStatus]) -> None:
        nonlocal now
        now += 1
        rows.tries += 1
        raise ValueError

    stub: Any = None
    statuses = StatusFollower("jobs", stub, slow)
    await statuses.take(delta(*map(str, range(BATCH))))
    assert 2 <= rows.tries <= 4
