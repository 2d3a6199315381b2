"""Addresses and names of people, as issuers and directories vouch for them."""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.errors import InvalidArgument
from windlass.users.domain import Member
from windlass.users.tables import members, people


@dataclass(frozen=True, slots=True)
class Contact:
    """The address and the name of a person; empty where nobody vouches for them."""

    email: str = ""
    name: str = ""


async def contacts(
    connection: AsyncConnection, organization_id: str, user_ids: Collection[str]
) -> dict[str, Contact]:
    """Returns what an organization knows of people, by their ids."""
    query = sa.select(people.c.user_id, people.c.email, people.c.name).where(
        people.c.organization_id == organization_id, people.c.user_id.in_(user_ids)
    )
    rows = await connection.execute(query)
    return {row.user_id: Contact(row.email, row.name) for row in rows}


def address_of(member: Member, known: Contact) -> str:
    """The address of a member: one that is vouched for, or their id; empty for none."""
    is_address = member.kind == "person" and "@" in member.user_id
    return known.email or (member.user_id if is_address else "")


def has_address(organization_id: str, emails: Collection[str]) -> sa.ColumnElement[bool]:
    """The condition on members that one of these is their address or id, in whichever case."""
    lowered = {one.lower() for one in emails}
    named = sa.select(people.c.user_id).where(
        people.c.organization_id == organization_id, sa.func.lower(people.c.email).in_(lowered)
    )
    return sa.or_(sa.func.lower(members.c.user_id).in_(lowered), members.c.user_id.in_(named))


async def addressed(connection: AsyncConnection, organization_id: str, email: str) -> str:
    """The id of the person with an address; empty where nobody has it.

    Raises InvalidArgument where several have it, or who has it is deactivated.
    """
    query = sa.select(people.c.user_id, people.c.deactivated_at).where(
        people.c.organization_id == organization_id, sa.func.lower(people.c.email) == email.lower()
    )
    found = (await connection.execute(query)).all()
    active = [row.user_id for row in found if not row.deactivated_at]
    if len(active) > 1:
        raise InvalidArgument("Several people have this address. Give user_id.", param="email")
    if found and not active:
        raise InvalidArgument("The person with this address is deactivated.", param="email")
    return next(iter(active), "")
