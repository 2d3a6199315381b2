"""Beats come at the same moments for everybody who waits for them."""

import asyncio
from collections import defaultdict

import pytest

from windlass.core.db.wake import Listener, Wake


class Timed(Listener):
    """A listener that notes until when it would wait, by the loop's clock."""

    def __init__(self) -> None:
        super().__init__(defaultdict(set), ())
        self.until = 0.0

    async def wait(self, timeout: float) -> bool:
        self.until = asyncio.get_running_loop().time() + timeout
        return False


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


@pytest.mark.parametrize(
    ("now", "seconds", "beat"),
    [
        (6.0, 3.0, 9.0),
        (6.1, 3.0, 9.0),
        (8.0, 3.0, 9.0),
        # Woken a little too soon: that beat has been.
        (8.999, 3.0, 12.0),
        (8.999, 6.0, 12.0),
        (2.1, 0.7, 2.8),
    ],
)
async def test_a_beat_is_the_next_moment(
    monkeypatch: pytest.MonkeyPatch, now: float, seconds: float, beat: float
) -> None:
    clock, listener = Clock(monkeypatch), Timed()
    clock.now = now
    await listener.wait_for_beat(seconds)
    assert listener.until == pytest.approx(beat)


async def test_a_touch_comes_before_the_beat() -> None:
    wake = Wake("")
    listener = wake.listen("topic")
    assert await listener.wait_for_beat(3600.0), "at first it looks"
    wake.touch("topic")
    assert await listener.wait_for_beat(3600.0)
    assert not await listener.wait_for_beat(0.01)


async def test_a_listener_may_take_other_topics() -> None:
    wake = Wake("")
    listener = wake.listen("one")
    await listener.wait(0)
    listener.add("two")
    wake.touch("two")
    assert await listener.wait(0)
    listener.remove("two")
    wake.touch("two")
    assert not await listener.wait(0)
    wake.touch("one")
    assert await listener.wait(0)
    listener.close()
    wake.touch("one")
    assert not await listener.wait(0)
