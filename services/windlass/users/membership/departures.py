"""Departures: what ends with a membership, and to whom a leaver's projects pass."""

from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.errors import NotFound
from windlass.core.rpc import audited
from windlass.policy import OWNER_ROLES, PROJECT_OWNER
from windlass.users.domain import SERVICE_ACCOUNT, Member
from windlass.users.elevation_ends import close_elevations
from windlass.users.exporting.ends import end_exports_of
from windlass.users.identity.forgetting import forget
from windlass.users.keys.losses import losses_by, require_own_key
from windlass.users.keys.revocation import end_where, note, resting_on, take_turn
from windlass.users.mail.withdrawal import forget_recipient
from windlass.users.membership.owners import answers, find_member, require_owner_left
from windlass.users.standing import is_active
from windlass.users.tables import (
    elevations,
    federation_rules,
    group_members,
    groups,
    members,
    people,
    projects,
    role_assignments,
)


async def leave(
    connection: AsyncConnection, member: Member, *, by_key: str, successor: str = ""
) -> list[str]:
    """Removes a member while owners are locked; returns the ids of the keys that end.

    What an organization knows of a person ends with its membership in it.
    Raises FailedPrecondition as `MemberStore.remove` does.
    """
    organization_id, project_id, user_id = (
        member.organization_id,
        member.project_id,
        member.user_id,
    )
    scope = [members.c.organization_id == organization_id, members.c.user_id == user_id]
    if project_id:
        scope.append(members.c.project_id == project_id)
    old = await find_member(connection, member)
    if successor:
        await _pass_on(connection, member, successor)
    if old is not None:
        await require_owner_left(connection, old, becoming="")
    audited.change(told(old), None)
    await take_turn(connection, organization_id)
    losses = await losses_by(connection, member)
    await require_own_key(connection, losses, by_key)
    await connection.execute(members.delete().where(*scope))
    await _take_roles(connection, member)
    await _take_rules(connection, member)
    if not project_id:
        # By the address that goes with the row.
        await forget_recipient(connection, organization_id, user_id)
        known = [people.c.organization_id == organization_id, people.c.user_id == user_id]
        await connection.execute(people.delete().where(*known))
        await _pass_projects_on(connection, organization_id)
    if not await _is_here(connection, organization_id, user_id):
        await forget_recipient(connection, organization_id, user_id)
        await forget(connection, organization_id, user_id)
        await end_exports_of(connection, organization_id, user_id)
    ended: list[str] = []
    # Again, for one that was made while the first waited for it.
    while some := await end_where(connection, losses.ends):
        ended += some
    await note(connection, resting_on([user_id, *filter(None, [successor])]))
    return ended


async def _is_here(connection: AsyncConnection, organization_id: str, user_id: str) -> bool:
    """Returns True for a member of the organization or of one of its projects, and for whom its
    directory knows.
    """
    is_here = sa.or_(
        _is_member(organization_id, user_id), _is_provisioned(organization_id, user_id)
    )
    return bool(await connection.scalar(sa.select(is_here)))


def _is_member(organization_id: str, user_id: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        members.c.organization_id == organization_id, members.c.user_id == user_id
    )


def _is_provisioned(organization_id: str, user_id: str) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        people.c.organization_id == organization_id,
        people.c.user_id == user_id,
        people.c.managed_at > 0,
    )


def told(member: Member | None) -> Member | None:
    """The part of a member that the audit log tells: not the name of a person, who may leave."""
    return replace(member, title="") if member else None


async def _take_roles(connection: AsyncConnection, member: Member) -> None:
    """Takes roles of the tenant's own from who leaves, there and below."""
    given = role_assignments.c
    where = [
        given.organization_id == member.organization_id,
        given.user_id == member.user_id,
    ]
    if member.project_id:
        where.append(given.project_id == member.project_id)
    await connection.execute(role_assignments.delete().where(*where))
    asked = [
        elevations.c.organization_id == member.organization_id,
        elevations.c.user_id == member.user_id,
    ]
    if member.project_id:
        asked.append(elevations.c.project_id == member.project_id)
    await close_elevations(connection, *asked)
    # Who is nothing here any more is in no group either; a project does not decide that of whom
    # the organization's directory knows.
    is_left = _is_member(member.organization_id, member.user_id)
    if member.project_id:
        is_left = sa.or_(is_left, _is_provisioned(member.organization_id, member.user_id))
    own = sa.select(groups.c.id).where(groups.c.organization_id == member.organization_id)
    left = (
        group_members.delete()
        .where(
            group_members.c.user_id == member.user_id, group_members.c.group_id.in_(own), ~is_left
        )
        .returning(group_members.c.group_id)
    )
    changed = list((await connection.execute(left)).scalars())
    if changed:
        await connection.execute(
            groups.update().where(groups.c.id.in_(changed)).values(version=groups.c.version + 1)
        )


async def _take_rules(connection: AsyncConnection, member: Member) -> None:
    """Removes the rules by which workloads act as who leaves: another may have the name later."""
    rules = federation_rules.c
    where = [
        rules.organization_id == member.organization_id,
        rules.service_account_id == member.user_id,
    ]
    if member.project_id:
        where.append(rules.project_id == member.project_id)
    await connection.execute(federation_rules.delete().where(*where))


async def _pass_on(connection: AsyncConnection, leaver: Member, successor: str) -> None:
    """Makes the successor an owner of the projects that the leaver alone owns.

    Keys never pass. Raises NotFound unless the successor is another person who is a
    member of the organization or the project.
    """
    here = members.c.organization_id == leaver.organization_id
    scope = [here, members.c.project_id != ""]
    if leaver.project_id:
        scope.append(members.c.project_id == leaver.project_id)
    follows = sa.exists().where(here, answers(), members.c.user_id == successor)
    if successor == leaver.user_id or not await connection.scalar(sa.select(follows)):
        raise NotFound(f"{successor} is no other person of the organization.", param="successor")
    other = members.alias()
    others = sa.exists().where(
        other.c.organization_id == members.c.organization_id,
        other.c.project_id == members.c.project_id,
        other.c.user_id != leaver.user_id,
        other.c.role.in_(OWNER_ROLES),
        other.c.kind != SERVICE_ACCOUNT,
    )
    names = ["organization_id", "project_id", "user_id", "role", "created_at"]
    owned = sa.select(
        members.c.organization_id,
        members.c.project_id,
        sa.literal(successor),
        sa.literal(PROJECT_OWNER),
        sa.literal(now_seconds()),
    ).where(*scope, members.c.user_id == leaver.user_id, members.c.role.in_(OWNER_ROLES), ~others)
    statement = insert(members).from_select(names, owned)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=names[:3], set_={"role": PROJECT_OWNER})
    )


async def _pass_projects_on(connection: AsyncConnection, organization_id: str) -> None:
    """Makes the organization's owners owners of its projects that have none."""
    other = members.alias()
    ownerless = ~sa.exists().where(
        other.c.organization_id == organization_id,
        other.c.project_id == projects.c.id,
        other.c.role.in_(OWNER_ROLES),
        other.c.kind != SERVICE_ACCOUNT,
        is_active(other.c.organization_id, other.c.user_id),
    )
    everywhere = members.join(projects, projects.c.organization_id == members.c.organization_id)
    heirs = (
        sa.select(
            members.c.organization_id,
            projects.c.id,
            members.c.user_id,
            sa.literal(PROJECT_OWNER),
            members.c.created_at,
        )
        .select_from(everywhere)
        .where(
            members.c.organization_id == organization_id,
            members.c.project_id == "",
            members.c.role.in_(OWNER_ROLES),
            answers(),
            ownerless,
        )
    )
    names = ["organization_id", "project_id", "user_id", "role", "created_at"]
    statement = insert(members).from_select(names, heirs)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=names[:3], set_={"role": PROJECT_OWNER})
    )
