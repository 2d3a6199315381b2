"""Conditions of a request for events of the audit log."""

from collections.abc import Sequence

import sqlalchemy as sa

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.rbac.store import PagePlace
from windlass.rbac.tables import audit_events

# Values of one field.
MOST_VALUES = 100


def valid_place(request: pb.ListAuditEventsRequest) -> PagePlace:
    """The place where the asked page begins; raises InvalidArgument."""
    if request.order not in ("", "asc", "desc"):
        raise InvalidArgument("order must be asc or desc.", param="order")
    if request.after and request.before:
        raise InvalidArgument("Give either after or before.", param="before")
    cursor = request.after or request.before
    return PagePlace(cursor, request.order == "asc", backward=bool(request.before))


def filter_of(request: pb.ListAuditEventsRequest) -> sa.ColumnElement[bool]:
    """The conditions on an event; raises InvalidArgument for too many values."""
    events = audit_events.c
    conditions: list[sa.ColumnElement[bool]] = [sa.true()]
    for name, column in (
        ("project_ids", events.project_id),
        ("user_ids", events.user_id),
        ("resources", events.resource),
    ):
        if values := _bounded(getattr(request, name), name):
            conditions.append(column.in_(values))
    if actors := _bounded(request.actor_ids, "actor_ids"):
        conditions.append(sa.or_(events.user_id.in_(actors), events.key_id.in_(actors)))
    if request.not_before_ms:
        conditions.append(events.at_ms >= request.not_before_ms)
    if request.before_ms:
        conditions.append(events.at_ms < request.before_ms)
    if len(request.matches) > MOST_VALUES:
        raise _too_many("matches")
    if request.matches:
        # Beside what follows from each, so that the index by action serves.
        conditions.append(events.action.in_({one.action for one in request.matches}))
        conditions.append(sa.or_(*map(_matched, request.matches)))
    return sa.and_(*conditions)


def _matched(match: pb.AuditMatch) -> sa.ColumnElement[bool]:
    events = audit_events.c
    conditions = [events.action == match.action]
    for is_set, there, found in (
        (match.HasField("before"), match.before, events.before != ""),
        (match.HasField("after"), match.after, events.after != ""),
        (match.HasField("succeeded"), match.succeeded, events.outcome == "OK"),
    ):
        if is_set:
            conditions.append(found if there else sa.not_(found))
    if match.kind:
        # No value holds this: its quotes are escaped.
        pair = f'"kind":"{match.kind}"'
        conditions.append(
            sa.or_(
                events.before.contains(pair, autoescape=True),
                events.after.contains(pair, autoescape=True),
            )
        )
    return sa.and_(*conditions)


def _bounded(values: Sequence[str], name: str) -> list[str]:
    if len(values) > MOST_VALUES:
        raise _too_many(name)
    return list(values)


def _too_many(name: str) -> InvalidArgument:
    return InvalidArgument(f"{name} has at most {MOST_VALUES} values.", param=name)
