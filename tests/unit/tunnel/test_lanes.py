"""Lanes open as calls need them; two ends of one in memory stand for gRPC's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.waiting import PATIENCE, until
from tests.unit.tunnel.test_multiplexer import End

from windlass.api.sessions.v1.sessions_pb2 import Chunk
from windlass.core.errors import Unavailable
from windlass.tunnel import lanes as lanes_module
from windlass.tunnel.lanes import Lanes
from windlass.tunnel.multiplexed_call import MultiplexedCall
from windlass.tunnel.multiplexer import Multiplexer

FIRST = Chunk(connection_id="c")


class Site:
    """Lanes to servers of their own, which keep every call."""

    def __init__(self) -> None:
        self.lanes = Lanes(self.start)
        self.servers: list[Multiplexer] = []
        self.running: list[asyncio.Task[None]] = []
        self.closed: list[End] = []
        self.answers = True

    def start(self) -> tuple[End, Callable[[], Awaitable[object]]]:
        near, far = End(), End()
        near.other, far.other = far, near

        async def handle(call: MultiplexedCall) -> None:
            while True:
                await call.read()

        async def close() -> None:
            self.closed.append(near)

        if self.answers:
            self.servers.append(Multiplexer(far, handle))
            self.running.append(asyncio.create_task(self.servers[-1].run()))
        return near, close

    @property
    def loads(self) -> list[int]:
        """Number of calls on each lane."""
        return [server.load for server in self.servers]


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(lanes_module, "CALLS_PER_LANE", 3)
    made = Site()
    async with asyncio.timeout(PATIENCE):
        yield made
    await made.lanes.close()
    for task in made.running:
        task.cancel()
    await asyncio.gather(*made.running, return_exceptions=True)


async def test_calls_share_lanes_that_have_room(site: Site) -> None:
    assert not site.servers
    calls = await asyncio.gather(*(site.lanes.open(FIRST) for _ in range(7)))
    await until(lambda: site.loads == [3, 3, 1])
    calls[0].cancel()
    await until(lambda: site.loads == [2, 3, 1])
    await site.lanes.open(FIRST)
    await until(lambda: site.loads == [3, 3, 1])


async def test_a_lane_that_is_left_serves_what_it_has_and_closes(site: Site) -> None:
    old = await site.lanes.open(FIRST)
    site.lanes.renew()
    await site.lanes.open(FIRST)
    await until(lambda: site.loads == [1, 1])
    assert not site.closed
    old.cancel()
    await until(lambda: site.closed)


async def test_a_lane_that_is_lost_is_replaced(site: Site) -> None:
    lost = await site.lanes.open(FIRST)
    site.lanes._lanes.copy().popitem()[0].abort(Unavailable("It broke."))
    with pytest.raises(Unavailable):
        await lost.read()
    await until(lambda: site.closed)
    await site.lanes.open(FIRST)
    assert len(site.servers) == 2


async def test_a_lane_that_nobody_answers_holds_nobody_for_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.answers = False
    with monkeypatch.context() as patch:
        patch.setattr(lanes_module, "OPEN_SECONDS", 0.05)
        with pytest.raises(Unavailable, match="does not answer"):
            await site.lanes.open(FIRST)
    site.answers = True
    await site.lanes.open(FIRST)
    await until(lambda: site.loads == [1])


async def test_closing_ends_every_call(site: Site) -> None:
    call = await site.lanes.open(FIRST)
    await site.lanes.close()
    with pytest.raises(Unavailable):
        await call.read()
    assert len(site.closed) == 1
