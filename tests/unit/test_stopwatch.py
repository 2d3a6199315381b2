"""Stopwatches of tests count what the product takes, and always a part of what passes."""

import time

import pytest
from tests.support import waiting


@pytest.mark.parametrize(
    ("passed", "stalled", "counted"),
    [(3.0, 0.0, 3.0), (3.0, 2.0, 1.0), (3.0, 2.9, 0.6), (10.0, 10.0, 2.0)],
)
def test_a_time_on_a_busy_machine_counts_in_part(
    monkeypatch: pytest.MonkeyPatch, passed: float, stalled: float, counted: float
) -> None:
    now = {"clock": 100.0, "stalled": 50.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["clock"])
    monkeypatch.setattr(waiting, "_stalled", lambda: now["stalled"])
    watch = waiting.Watch()
    now["clock"] += passed
    now["stalled"] += stalled
    assert watch.seconds() == pytest.approx(counted)
    assert [watch.has_run(seconds) for seconds in (counted - 0.1, counted + 0.1)] == [True, False]


def test_patience_ends_on_a_busy_machine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting, "_stalled", lambda: now[0])
    watch = waiting.Watch()
    now[0] += waiting.PATIENCE
    assert watch.has_run(waiting.PATIENCE / 2)
    assert not watch.has_run(waiting.PATIENCE + 1)


def test_a_limit_is_five_times_as_long_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 5.5))
    stalled = iter((0.0, 5.5))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(waiting, "_stalled", lambda: next(stalled))
    with pytest.raises(AssertionError, match=r"it took 1\.10 s"), waiting.within(1.0):
        pass
