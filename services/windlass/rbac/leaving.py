"""Claims of the tables and objects of rbac."""

import sqlalchemy as sa

from windlass.core.leaving.claims import LeavingClaims, ObjectClaim, Scope, erased, ids_alone
from windlass.rbac.tables import audit_chains, audit_destinations, audit_events


def _told_of(scope: Scope) -> sa.ColumnElement[bool]:
    """The organization's events; of its projects, those made there and those that name one."""
    events = audit_events.c
    own = events.organization_id == scope.organization_id
    if scope.whole:
        return own
    named = [
        column.contains(project_id, autoescape=True)
        for project_id in scope.project_ids
        for column in (events.resource, events.before, events.after)
    ]
    return sa.and_(own, sa.or_(scope.has_project(events.project_id), *named))


CLAIMS = LeavingClaims(
    "rbac",
    (
        ids_alone(
            audit_events,
            _told_of,
            named=audit_events.c.details_salt != "",
            why="the audit log: hashes cover ids, and of details a digest alone",
            before="",
            after="",
            details_salt="",
        ).keeping_apart("resource", "before", "after"),
        erased(audit_destinations).hiding("access_key_id"),
        ids_alone(
            audit_chains, why="heads of the log's chains, by the organization's id"
        ).exporting(lambda scope: audit_chains.c.id == scope.organization_id),
    ),
    (
        ObjectClaim("audit", why="signed checkpoints of the log's chains"),
        ObjectClaim("audit_dropped", why="signed notes of where the log's chains begin"),
    ),
)
