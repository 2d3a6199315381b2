"""Resources that a call changes beside the one that its request names, for the audit log."""

from collections.abc import Iterable
from contextvars import ContextVar

_also: ContextVar[tuple[str, ...]] = ContextVar("audited", default=())


def enter() -> None:
    """Begins a call, which has changed nothing yet. The boundary alone calls it."""
    _also.set(())


def also(resources: Iterable[str]) -> None:
    """Gives each of these ids a row of its own, should the call succeed."""
    _also.set((*_also.get(), *resources))


def noted() -> tuple[str, ...]:
    """The ids so far."""
    return _also.get()
