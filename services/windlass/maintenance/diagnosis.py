"""Findings of the doctor: a line for each part, and what to do about it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The state of one part, and the remedy where it is not well."""

    part: str
    level: Level
    message: str
    remedy: str = ""


def ok(part: str, message: str) -> CheckResult:
    """A part that is well."""
    return CheckResult(part, "ok", message)


def warn(part: str, message: str, remedy: str) -> CheckResult:
    """A part that works, and may not for long or not for everything."""
    return CheckResult(part, "warn", message, remedy)


def fail(part: str, message: str, remedy: str) -> CheckResult:
    """A part that keeps a server from its work."""
    return CheckResult(part, "fail", message, remedy)


async def guarded(part: str, check: Callable[[], Awaitable[CheckResult]]) -> CheckResult:
    """A check's answer; what it raises is a failure of that part alone."""
    try:
        return await check()
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        return fail(part, said, f"See `windlass config check`, and correct {part}.")
