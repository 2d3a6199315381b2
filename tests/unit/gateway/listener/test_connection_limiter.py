"""The limiter looks at connections while some are open, with room between those that it ends."""

import asyncio

import pytest
from tests.support.waiting import stays, until

from windlass.core.addresses import ClientAddresses
from windlass.core.config import HttpSection
from windlass.gateway.listener import connection_limiter
from windlass.gateway.listener.bounds import ListenerBounds
from windlass.gateway.listener.connection_limiter import ENDINGS, ConnectionLimiter, Use


class Late:
    """A connection whose time is up."""

    use = Use.HALF_OPEN
    ended = 0

    def __init__(self, number: int):
        self.peer = f"10.0.{number // 256}.{number % 256}"

    def check(self, now: float) -> str:
        """Counts the ending."""
        Late.ended += 1
        return "late_head"

    def abort(self) -> None:
        """Nothing to close."""


def make_limiter() -> ConnectionLimiter:
    return ConnectionLimiter(ListenerBounds.of(HttpSection()), ClientAddresses(()))


async def test_others_are_served_while_many_connections_are_ended() -> None:
    limiter = make_limiter()
    Late.ended, many, between = 0, ENDINGS * 10, []
    for number in range(many):
        assert limiter.admit(Late(number))
    looking = asyncio.create_task(limiter.look())
    while not looking.done():
        between.append(Late.ended)
        await asyncio.sleep(0)
    assert Late.ended == many
    steps = [after - before for before, after in zip(between, [*between[1:], many], strict=True)]
    assert max(steps) <= ENDINGS


async def test_nobody_looks_while_nothing_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = list[int]()

    class Watched(ConnectionLimiter):
        async def look(self) -> None:
            looks.append(self.count)
            await super().look()

    monkeypatch.setattr(connection_limiter, "SWEEP_SECONDS", 0.01)
    limiter = Watched(ListenerBounds.of(HttpSection()), ClientAddresses(()))
    sweeping = asyncio.create_task(limiter.sweep())
    await stays(lambda: not looks)
    open_now = Late(1)
    for _ in range(2):
        assert limiter.admit(open_now)
        await until(lambda: 1 in looks)
        limiter.release(open_now)
        # The one that was about to come when the last connection went.
        await until(lambda: looks[-1] == 0)
        looks.clear()
        await stays(lambda: not looks)
    sweeping.cancel()
