"""Decisions on requests: each checks who decides, at the moment of the decision."""

from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.rpc.auth import Principal
from windlass.users.elevations.deciders import decider, still_able
from windlass.users.elevations.domain import (
    APPROVED,
    DENIED,
    ENDED,
    PENDING,
    Elevation,
    closed,
)
from windlass.users.elevations.store import Decision
from windlass.users.roles.changes import assign_role, unassign_role
from windlass.users.roles.domain import CustomRole, RoleAssignment


def approval(principal: Principal, comment: str) -> Decision:
    """An approval, which gives the role if it is the last that is needed; idempotent.

    Approvals of those who may not give the role any more do not count.
    """

    async def approve(connection: AsyncConnection, one: Elevation, role: CustomRole) -> Elevation:
        now, by = now_seconds(), await decider(connection, principal, one)
        by.require_decision(one, role)
        state = one.state_at(now)
        if by.user_id in one.approved_by and state in (PENDING, APPROVED):
            return one
        if state != PENDING:
            raise closed(one, now)
        able = await still_able(connection, role, one.project_id, one.approved_by)
        if able != one.approved_by:
            # Of two at most, none is left.
            one = replace(one, approved_by=(), approval_rests_on=())
        by.require_independence(one)
        approved = replace(
            one,
            approved_by=(*one.approved_by, by.user_id),
            approval_rests_on=tuple(sorted({*one.approval_rests_on, *by.key_rests_on})),
            comment=comment,
        )
        if len(approved.approved_by) < one.approvals:
            return approved
        given = _assignment(one, ends_at=now + one.seconds, by=by.user_id)
        await assign_role(connection, given, lambda _: None)
        return replace(approved, state=APPROVED, ends_at=given.ends_at)

    return approve


def denial(principal: Principal, comment: str) -> Decision:
    """A denial; idempotent."""

    async def deny(connection: AsyncConnection, one: Elevation, role: CustomRole) -> Elevation:
        now, by = now_seconds(), await decider(connection, principal, one)
        by.require_decision(one, role)
        if one.state == DENIED and one.denied_by == by.user_id:
            return one
        if one.state_at(now) != PENDING:
            raise closed(one, now)
        return replace(one, state=DENIED, denied_by=by.user_id, comment=comment, closed_at=now)

    return deny


def end(principal: Principal) -> Decision:
    """An end before its time, by who has the role or by who may give it; idempotent."""

    async def take(connection: AsyncConnection, one: Elevation, role: CustomRole) -> Elevation:
        now = now_seconds()
        if principal.user_id != one.user_id:
            (await decider(connection, principal, one)).require_power(role)
        state = one.state_at(now)
        if state == ENDED:
            return one
        if state != APPROVED:
            raise closed(one, now)
        await unassign_role(connection, _assignment(one), lambda _: None)
        return replace(one, state=ENDED, closed_at=now)

    return take


def _assignment(one: Elevation, *, ends_at: int = 0, by: str = "") -> RoleAssignment:
    return RoleAssignment(
        one.organization_id,
        one.project_id,
        one.role_id,
        one.user_id,
        "",
        ends_at,
        now_seconds(),
        by,
    )
