"""People whom issuers vouch for: members by their identities, invites and groups."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_GROUP_MEMBERS
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.ids import new_id
from windlass.policy import OWNER_ROLES, PLATFORM_ROLES
from windlass.users.domain import KEYS_TOPIC
from windlass.users.groups.store import change_group, is_managed, people_of
from windlass.users.keys.revocation import note, resting_on
from windlass.users.sign_in.domain import (
    IdentityProvider,
    Invite,
    IssuerPerson,
    SignedIn,
    is_of_domains,
    refused,
)
from windlass.users.sign_in.identities import Membership, identify, is_known, known, user_of
from windlass.users.sign_in.invites.acceptance import accept, offered
from windlass.users.sign_in.mail_domains.store import verified_domain
from windlass.users.sign_in.policies.store import read_policy
from windlass.users.tables import (
    directories,
    group_members,
    groups,
    members,
    organizations,
    people,
)

# Of one person, of whom the page of a sign-in asks which.
MOST_ORGANIZATIONS = 20


class SignInPeople:
    """People of organizations as their issuers name them."""

    def __init__(self, database: Database, wake: Wake):
        self._database = database
        self._wake = wake

    async def sign_in(
        self, person: IssuerPerson, provider: IdentityProvider, *, invite: bytes = b""
    ) -> Sequence[SignedIn]:
        """The organizations that a person may sign in to, one by an invite whose link is given.

        Raises PermissionDenied for who is none's, and NotFound for an invite that is not open.
        """
        _require_domain(person, provider)
        async with self._database.begin() as connection:
            if invite:
                found = [await accept(connection, invite, person, provider)]
            else:
                found = await known(connection, person)
                if not found and person.directory_id and provider.organization_id:
                    found = await _provisioned(connection, person, provider)
                if not found and (way := await _way_in(connection, person, provider)):
                    found = [await _join(connection, person, *way)]
            found = [one for one in found if await _is_let_in(connection, one, provider)]
            active = [one for one in found if await _note_person(connection, one, person)]
            if provider.organization_id:
                for _, user_id in active:
                    await _follow_groups(connection, user_id, person, provider)
            if not active:
                # Nothing of it stays, an invite included.
                raise refused(
                    "No organization here knows you by this sign-in. Ask one of its owners for an "
                    "invite, and open its link.",
                )
        self._wake.touch(KEYS_TOPIC)
        return [person.within(*one) for one in active[:MOST_ORGANIZATIONS]]

    async def invited(
        self, person: IssuerPerson, provider: IdentityProvider, *, invite: bytes
    ) -> Invite:
        """The invite of a link's digest, which nothing is changed by, for whom it is meant.

        Raises PermissionDenied and NotFound as its acceptance would.
        """
        _require_domain(person, provider)
        async with self._database.begin() as connection:
            return (await offered(connection, invite, person, provider)).invite

    async def titles(self, ids: Sequence[str]) -> dict[str, str]:
        """Titles of organizations by their ids."""
        query = sa.select(organizations.c.id, organizations.c.title)
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query.where(organizations.c.id.in_(ids)))
            return {row.id: row.title for row in rows}


def _require_domain(person: IssuerPerson, provider: IdentityProvider) -> None:
    if not is_of_domains(person.email, provider.domains):
        raise refused(
            f"{provider.name} lets in only people with a verified address of "
            f"{', '.join(provider.domains)}.",
        )


async def _provisioned(
    connection: AsyncConnection, person: IssuerPerson, provider: IdentityProvider
) -> list[Membership]:
    """The person whom the organization's directory knows by what its own issuer says.

    No owner is found so, nor who operates the platform: who may change what the directory says of
    people, or the issuer, may be below them.
    """
    organization_id, name = provider.organization_id, person.directory_id
    owns = sa.exists().where(
        members.c.user_id == people.c.user_id,
        members.c.role.in_(OWNER_ROLES),
        sa.or_(members.c.organization_id == organization_id, members.c.role.in_(PLATFORM_ROLES)),
    )
    is_member = sa.exists().where(
        members.c.organization_id == organization_id, members.c.user_id == people.c.user_id
    )
    query = sa.select(people.c.user_id).where(
        people.c.organization_id == organization_id,
        people.c.managed_at > 0,
        sa.or_(
            people.c.external_id == name,
            sa.func.lower(people.c.user_name) == name.lower(),
        ),
        is_member,
        ~owns,
    )
    found = (await connection.execute(query.limit(2))).scalars().all()
    # What two have names neither.
    if len(found) != 1 or await user_of(connection, person, organization_id):
        return []
    await identify(connection, person, organization_id, found[0])
    return [(organization_id, found[0])]


async def _is_let_in(
    connection: AsyncConnection, membership: Membership, provider: IdentityProvider
) -> bool:
    """Returns False where an organization lets people in by issuers of its own alone."""
    own = provider.organization_id == membership[0]
    return own or not (await read_policy(connection, membership[0])).required


async def _way_in(
    connection: AsyncConnection, person: IssuerPerson, provider: IdentityProvider
) -> tuple[str, str] | None:
    """The organization that takes in a new person, and their role; None: they need an invite.

    An organization's own issuer takes in its people, and one of the installation those whose
    verified address is in a domain of the organization. Who was removed stays out until somebody
    invites them again. Where a directory decides who is one of its people, whom it does not know is
    none: they may have been removed, or be an owner.
    """
    if provider.organization_id:
        way = (provider.organization_id, "" if provider.person_claim else provider.default_role)
    else:
        domain = await verified_domain(connection, person.email)
        if domain is None or await _is_provisioned(connection, domain.organization_id):
            return None
        way = (domain.organization_id, domain.default_role)
    return way if way[1] and not await is_known(connection, person, way[0]) else None


async def _is_provisioned(connection: AsyncConnection, organization_id: str) -> bool:
    query = sa.exists().where(directories.c.id == organization_id)
    return bool(await connection.scalar(sa.select(query)))


async def _join(
    connection: AsyncConnection, person: IssuerPerson, organization_id: str, role: str
) -> Membership:
    """Makes a person a member with the role that their organization has chosen for new ones."""
    # Never a name that somebody chose: another's roles would come with it.
    user_id = new_id("user_")
    row = {
        "organization_id": organization_id,
        "project_id": "",
        "user_id": user_id,
        "role": role,
        "created_at": now_seconds(),
    }
    await connection.execute(members.insert().values(row))
    await identify(connection, person, organization_id, user_id)
    return organization_id, user_id


async def _note_person(
    connection: AsyncConnection, membership: Membership, person: IssuerPerson
) -> bool:
    """Notes what the issuer says of a person; returns False for one who is deactivated."""
    organization_id, user_id = membership
    now = now_seconds()
    said = {"email": person.email, "name": person.name, "updated_at": now}
    row = {"organization_id": organization_id, "user_id": user_id, "created_at": now}
    statement = insert(people).values(row | said)
    # What the organization's directory has said of them stays.
    statement = statement.on_conflict_do_update(
        index_elements=["organization_id", "user_id"], set_=said, where=people.c.managed_at == 0
    )
    await connection.execute(statement)
    query = sa.select(people.c.deactivated_at).where(
        people.c.organization_id == organization_id, people.c.user_id == user_id
    )
    return not (await connection.execute(query)).scalar_one()


async def _follow_groups(
    connection: AsyncConnection, user_id: str, person: IssuerPerson, provider: IdentityProvider
) -> None:
    """Has a person in the groups that their issuer's claim stands for, and in no other of these.

    Groups that a directory manages stay as they are, and nobody comes to one that is full.
    """
    mapped = set(provider.groups.values())
    if not provider.groups_claim or not mapped:
        return
    wanted = {provider.groups[name] for name in person.groups if name in provider.groups}
    mine = sa.and_(group_members.c.user_id == user_id, group_members.c.group_id.in_(mapped))
    query = sa.select(group_members.c.group_id).where(mine)
    held = set((await connection.execute(query)).scalars())
    # One that was removed meanwhile is gone.
    there = sa.select(groups.c.id).where(groups.c.id.in_(held ^ wanted), ~is_managed())
    turns = there.order_by(groups.c.id).with_for_update(of=groups)
    for group_id in (await connection.execute(turns)).scalars().all():
        if group_id in held:
            statement: sa.Executable = group_members.delete().where(
                mine, group_members.c.group_id == group_id
            )
        elif len(await people_of(connection, group_id)) < MAX_GROUP_MEMBERS:
            joined = {"group_id": group_id, "user_id": user_id, "added_at": now_seconds()}
            statement = insert(group_members).values(joined).on_conflict_do_nothing()
        else:
            continue
        await connection.execute(statement)
        await change_group(connection, group_id)
    if wanted != held:
        await note(connection, resting_on([user_id]))
