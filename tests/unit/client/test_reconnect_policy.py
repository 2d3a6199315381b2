"""A reader of a live stream waits ever longer for its server, never in step with other readers."""

import time

import pytest

from windlass.client.errors import ConnectionFailed
from windlass.client.transport.reconnect_policy import ReconnectPolicy


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, which last nothing."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def test_pauses_double_up_to_a_bound_and_differ_between_readers(slept: list[float]) -> None:
    bounds = [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    readers = [ReconnectPolicy(60) for _ in range(2)]
    for policy in readers:
        policy.reset()
        for _ in bounds:
            policy.record_failure(ConnectionFailed("away"))
    first, second = slept[: len(bounds)], slept[len(bounds) :]
    assert first != second
    for pauses in (first, second):
        assert all(bound / 2 <= one <= bound for one, bound in zip(pauses, bounds, strict=True))


def test_an_answer_makes_the_next_pause_short_again(slept: list[float]) -> None:
    policy = ReconnectPolicy(60)
    policy.reset()
    for _ in range(4):
        policy.record_failure(ConnectionFailed("away"))
    policy.reset()
    policy.wait()
    assert slept[-1] <= 0.2


def test_the_first_contact_must_succeed(slept: list[float]) -> None:
    with pytest.raises(ConnectionFailed):
        ReconnectPolicy(60).record_failure(ConnectionFailed("away"))
    assert slept == []
