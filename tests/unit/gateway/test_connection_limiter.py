"""The limiter leaves room between the connections that it ends."""

import asyncio

from windlass.core.addresses import ClientAddresses
from windlass.core.config import HttpSection
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


async def test_others_are_served_while_many_connections_are_ended() -> None:
    limiter = ConnectionLimiter(ListenerBounds.of(HttpSection()), ClientAddresses(()))
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
