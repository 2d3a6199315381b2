"""Schedules of replicas, right across daylight saving."""

from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from windlass.serving_schedules import ScheduleWindow, read_window, scheduled, window_messages

BERLIN = "Europe/Berlin"
OFFICE: dict[str, Any] = {
    "start": "0 8 * * 1-5",
    "end": "0 18 * * 1-5",
    "timezone": BERLIN,
    "replicas": 3,
}


def window(**changes: Any) -> ScheduleWindow:
    return ScheduleWindow(**OFFICE | changes)


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("when", "replicas"),
    [
        ("2026-11-25 07:59:59", 0), ("2026-11-25 08:00:00", 3), ("2026-11-25 08:00:30", 3),
        ("2026-11-25 17:59:59", 3), ("2026-11-25 18:00:00", 0),
        # A Friday's evening, a Saturday, a Monday.
        ("2026-11-27 20:00:00", 0), ("2026-11-28 12:00:00", 0), ("2026-11-30 08:00:00", 3),
        # The same hours before and after the clock is put on and back.
        ("2026-03-27 08:00:00", 3), ("2026-03-30 07:59:00", 0), ("2026-03-30 08:00:00", 3),
        ("2026-10-23 17:59:00", 3), ("2026-10-26 07:59:00", 0), ("2026-10-26 08:00:00", 3),
    ],
)  # fmt: skip
def test_a_window_is_open_from_its_start_to_its_end(when: str, replicas: int) -> None:
    assert scheduled([window()], at(when)) == replicas


def test_an_hour_that_a_day_lacks_or_has_twice_opens_and_closes_once() -> None:
    night = window(start="30 2 * * *", end="0 4 * * *")
    # Berlin has no 02:30 on this day: the clock jumps from 02:00 to 03:00.
    day = [scheduled([night], at("2026-03-29 00:00") + 60 * minute) for minute in range(23 * 60)]
    changes = [two - one for one, two in pairwise(day) if two != one]
    assert changes == [3, -3]
    assert scheduled([night], at("2026-03-29 03:00")) == 3
    # And twice 02:30 on this one.
    day = [scheduled([night], at("2026-10-25 00:00") + 60 * minute) for minute in range(25 * 60)]
    changes = [two - one for one, two in pairwise(day) if two != one]
    assert changes == [3, -3]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25", "2026-11-25"])
@pytest.mark.parametrize(
    "times",
    [
        ("30 2 * * *", "0 4 * * *"),
        ("*/7 * * * *", "*/5 * * * *"),
        ("0 * * * *", "9 2,3 * * *"),
    ],
)
def test_what_was_found_holds_until_the_next_time(day: str, times: tuple[str, str]) -> None:
    one = window(start=times[0], end=times[1])
    minutes = [at(f"{day} 00:00") + 60 * minute for minute in range(6 * 60)]
    forward = [scheduled([one], minute) for minute in minutes]
    # Each is looked at anew on the way back: nothing is kept for what lies before it.
    assert [scheduled([one], minute) for minute in reversed(minutes)] == forward[::-1]
    assert set(forward) == {0, 3}


def test_windows_over_midnight_and_several_at_once() -> None:
    night = window(start="0 22 * * *", end="0 6 * * *", replicas=1)
    assert scheduled([night], at("2026-11-25 23:00")) == 1
    assert scheduled([night], at("2026-11-25 03:00")) == 1
    assert scheduled([night], at("2026-11-25 12:00")) == 0
    assert scheduled([night, window()], at("2026-11-25 12:00")) == 3
    assert scheduled([window(), window(replicas=5)], at("2026-11-25 12:00")) == 5
    assert scheduled([], at("2026-11-25 12:00")) == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"start": "8 o'clock"}, "no time of cron"),
        ({"start": "0 8 * * 1-5 2026"}, "five fields"),
        ({"end": "0 0 31 2 *"}, "no time of cron"),
        ({"end": "61 * * * *"}, "no time of cron"),
        ({"timezone": "Mars/Olympus"}, "no time zone"),
        ({"timezone": "../../etc/passwd"}, "no time zone"),
        ({"replicas": 0}, "greater than or equal to 1"),
        ({"replicas": 65}, "less than or equal to 64"),
        ({"often": True}, "Extra inputs"),
    ],
)
def test_what_is_no_window_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said) as refused:
        window(**changes)
    assert refused.value.errors()[0]["loc"] == tuple(changes)


@given(st.floats(min_value=1.7e9, max_value=2.0e9))
def test_it_is_always_open_or_closed_and_travels_whole(now: float) -> None:
    one = window()
    assert scheduled([one], now) in (0, 3)
    assert [read_window(message) for message in window_messages([one])] == [one]
