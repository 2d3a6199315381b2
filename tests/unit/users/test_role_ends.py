"""The loop that ends roles, by a stand-in of the store: no database fails when a test wants it."""

import asyncio
from typing import Any

import pytest
from tests.support.waiting import PATIENCE

from windlass.users.roles import ends


class Store:
    """A store that is away when it is first asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.answered = asyncio.Event()

    async def end_expired(self) -> bool:
        self.asked += 1
        if self.asked == 1:
            raise ConnectionError("server closed the connection unexpectedly")
        return False

    async def next_end(self) -> float:
        self.answered.set()
        return 0.0


class Listener:
    def listen(self, topic: str) -> "Listener":
        return self

    async def wait(self, seconds: float) -> bool:
        await asyncio.sleep(seconds)
        return False


async def test_a_store_that_is_away_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(ends, "RETRY_SECONDS", 0.0)
    store, wake = Store(), Listener()
    roles: Any = store
    listens: Any = wake
    loop = asyncio.create_task(ends.end_roles(roles, listens))
    async with asyncio.timeout(PATIENCE):
        await store.answered.wait()
    assert not loop.done()
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
