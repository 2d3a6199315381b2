"""Schedules of a model's replicas: windows of time by cron, each in its own time zone.

Times of cron are those of Debian's, also across daylight saving: a time that a day lacks counts
when the clock has jumped over it, and one that a day has twice counts once
(https://github.com/cuu508/cronsim).
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.bounds import MAX_REPLICAS

MAX_WINDOWS = 16
_SOMETIME = datetime(2026, 1, 1, tzinfo=UTC)


def _cron(text: str) -> str:
    try:
        # Without bounds in OpenAPI: nothing of the greatest length is a time.
        if len(text) > 100 or len(text.split()) != 5:
            raise CronSimError("it needs five fields")
        next(CronSim(text, _SOMETIME))
    except (CronSimError, StopIteration) as error:
        said = str(error) or "it never comes"
        raise ValueError(f"{text!r} is no time of cron: {said}") from error
    return text


def _zone(name: str) -> str:
    try:
        if len(name) > 64:
            raise ValueError(name)
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is no time zone, such as Europe/Berlin") from error
    return name


class ScheduleWindow(BaseModel):
    """A window of time, from each `start` until the next `end`, with at least so many replicas."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    start: Annotated[str, AfterValidator(_cron)] = Field(
        description="Time of cron, such as `0 8 * * 1-5`."
    )
    end: Annotated[str, AfterValidator(_cron)] = Field(
        description="Time of cron at which the window ends."
    )
    timezone: Annotated[str, AfterValidator(_zone)] = Field(
        "UTC", description="Name of the time zone of both."
    )
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] = Field(
        description="Engines that run in it whether or not somebody asks."
    )


def scheduled(windows: Iterable[ScheduleWindow], now: float) -> int:
    """The replicas that the windows ask for at a time in Unix seconds; 0 outside of all."""
    return max((one.replicas for one in windows if _watched(one).is_active(now)), default=0)


class _Watched:
    """A window, whether it is active, and the times for which that holds.

    A planner asks each second, and the times of some windows are years apart: what was found is
    kept until the next of them.
    """

    __slots__ = ("_active", "_since", "_until", "_window")

    def __init__(self, window: ScheduleWindow) -> None:
        self._window = window
        self._active = False
        self._since = self._until = 0.0

    def is_active(self, now: float) -> bool:
        """Returns True if the last start is later than the last end."""
        if not self._since <= now < self._until:
            self._look(now)
        return self._active

    def _look(self, now: float) -> None:
        crons = (self._window.start, self._window.end)
        self._since = now - now % 60
        # Beyond the minute, which counts itself.
        after = datetime.fromtimestamp(self._since + 60, ZoneInfo(self._window.timezone))
        started, ended = (_last(cron, after) for cron in crons)
        self._active = started is not None and (ended is None or started > ended)
        clock = after - timedelta(minutes=1)
        self._until = min(float(next(CronSim(cron, clock)).timestamp()) for cron in crons)


_watched = lru_cache(maxsize=2**16)(_Watched)


def _last(cron: str, before: datetime) -> float | None:
    """The last time of cron before another one, in Unix seconds; None if there is none."""
    clock = before.replace(fold=0)
    if before.fold:
        # The clock was put back: what it has shown once already lies ahead of it.
        clock += (clock.utcoffset() or timedelta()) - (before.utcoffset() or timedelta())
    for found in CronSim(cron, clock, reverse=True):
        if found.timestamp() < before.timestamp():
            return float(found.timestamp())
    return None


def read_window(message: pb.ScheduleWindow) -> ScheduleWindow:
    """The window of a message; raises pydantic's ValidationError."""
    return ScheduleWindow(
        start=message.start,
        end=message.end,
        timezone=message.timezone or "UTC",
        replicas=message.replicas,
    )


def window_messages(windows: Iterable[ScheduleWindow]) -> list[pb.ScheduleWindow]:
    """The same as messages."""
    return [pb.ScheduleWindow(**one.model_dump()) for one in windows]
