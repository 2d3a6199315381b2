"""Owners: every organization, project and the platform keeps one who can answer for it."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.policy import OWNER_ROLES, PLATFORM_ROLES
from windlass.users.domain import SERVICE_ACCOUNT, Member, last_owner
from windlass.users.keys.revocation import take_turn
from windlass.users.standing import is_active, is_platform_admin
from windlass.users.tables import members

# Held while administrators of the platform change, who are in several organizations.
_LOCK = 0x57494E4400000002


async def lock_owners(connection: AsyncConnection, organization_id: str) -> None:
    """Lets one transaction at a time change who owns what in an organization.

    Two owners that remove each other must not both succeed.
    """
    await take_turn(connection, organization_id, of="owners")


async def require_platform_admin(
    connection: AsyncConnection, *, without: sa.ColumnElement[bool]
) -> None:
    """Raises FailedPrecondition when nobody would administer the platform without these rows.

    Until the transaction ends, no other one takes an administrator away.
    """
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    query = sa.select(sa.exists().where(is_platform_admin(), answers(), sa.not_(without)))
    if not await connection.scalar(query):
        raise last_owner("the platform")


def answers() -> sa.ColumnElement[bool]:
    """The condition of a member who can answer for what they own: a person who is active."""
    return sa.and_(
        members.c.kind != SERVICE_ACCOUNT, is_active(members.c.organization_id, members.c.user_id)
    )


async def find_member(connection: AsyncConnection, member: Member) -> Member | None:
    """The member of the same scope and id that is there."""
    query = members.select().where(
        members.c.organization_id == member.organization_id,
        members.c.project_id == member.project_id,
        members.c.user_id == member.user_id,
    )
    row = (await connection.execute(query)).first()
    return member_of(row) if row else None


async def require_owner_left(connection: AsyncConnection, old: Member, *, becoming: str) -> None:
    """Raises FailedPrecondition when a scope loses its last owner by this change."""
    if old.role not in OWNER_ROLES or old.kind == SERVICE_ACCOUNT:
        return
    itself = sa.and_(
        members.c.organization_id == old.organization_id,
        members.c.project_id == old.project_id,
        members.c.user_id == old.user_id,
    )
    if old.role in PLATFORM_ROLES and becoming not in PLATFORM_ROLES:
        await require_platform_admin(connection, without=itself)
    if becoming in OWNER_ROLES:
        return
    query = sa.select(
        sa.exists().where(
            members.c.organization_id == old.organization_id,
            members.c.project_id == old.project_id,
            members.c.role.in_(OWNER_ROLES),
            answers(),
            sa.not_(itself),
        )
    )
    if not await connection.scalar(query):
        raise last_owner("the project" if old.project_id else "the organization")


def member_of(row: Any) -> Member:
    """The member of a row."""
    return Member(**{name: getattr(row, name) for name in Member.__slots__})
