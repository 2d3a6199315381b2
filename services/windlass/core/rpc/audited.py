"""Notes of what a call changes, for the audit log."""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# What a thing was or is: a record of a domain, or its fields by name.
Record: TypeAlias = "DataclassInstance | Mapping[str, Any] | None"


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """A thing that a call changes, and how; without `before` and `after`, only that it did."""

    # Its id; empty: what the request names.
    resource: str = ""
    before: Record = None
    after: Record = None


@dataclass(slots=True)
class _Noted:
    """Changes of the call's own row, and of rows beside it."""

    own: AuditedChange | None = None
    more: tuple[AuditedChange, ...] = ()


# Tasks that a handler starts note in the same place.
_noted: ContextVar[_Noted | None] = ContextVar("audited", default=None)


def enter() -> None:
    """Begins a call, which has changed nothing yet. The boundary alone calls it."""
    _noted.set(_Noted())


def change(before: Record, after: Record, *, resource: str = "") -> None:
    """Gives the call's row what it changes, should it succeed: None is what was not, or is no more.

    `resource` is the id of what the request does not name. What a second one changes has a row
    of its own. Whoever calls this vouches that the fields hold no secret.
    """
    noted, told = _noted.get(), AuditedChange(resource, before, after)
    if noted is None:
        return
    if noted.own is None:
        noted.own = told
    else:
        noted.more = (*noted.more, told)


def also(resources: Iterable[str]) -> None:
    """Gives each of these ids a row of its own, should the call succeed."""
    noted = _noted.get()
    if noted is not None:
        noted.more = (*noted.more, *(AuditedChange(one) for one in resources))


def noted() -> tuple[AuditedChange, ...]:
    """The change of the call's own row, then those of other rows."""
    noted = _noted.get() or _Noted()
    return (noted.own or AuditedChange(), *noted.more)
