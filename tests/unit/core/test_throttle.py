"""Guessers wait ever longer, and memory stays bounded whatever they do."""

import time

import pytest

from windlass.core.throttle import FORGET_SECONDS, LONGEST_SECONDS, Throttle


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_waits_double_after_the_allowance(clock: list[float]) -> None:
    throttle = Throttle(allowance=3)
    assert [throttle.fail("a") for _ in range(12)] == [
        0, 0, 0, 1, 2, 4, 8, 16, 32, *[LONGEST_SECONDS] * 3,
    ]  # fmt: skip
    assert throttle.wait("b") == 0
    clock[0] += LONGEST_SECONDS
    assert throttle.wait("a") == 0
    assert throttle.fail("a") == LONGEST_SECONDS
    clock[0] += FORGET_SECONDS + 1
    assert throttle.fail("a") == 0


def test_memory_is_bounded(clock: list[float]) -> None:
    throttle = Throttle(allowance=1, addresses=100)
    for number in range(10_000):
        throttle.fail(f"10.0.{number // 256}.{number % 256}")
    assert len(throttle) == 100
