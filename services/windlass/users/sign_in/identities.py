"""Identities: the members for whom organizations take the subjects of issuers."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.users.identity.tables import identities
from windlass.users.sign_in.domain import IssuerPerson
from windlass.users.tables import members, organizations

# An organization and a member of it.
Membership = tuple[str, str]


async def known(connection: AsyncConnection, person: IssuerPerson) -> list[Membership]:
    """The live organizations that a person is a member of, by this subject of an issuer."""
    live = sa.select(organizations.c.id).where(organizations.c.deleted_at == 0)
    is_member = sa.exists().where(
        members.c.organization_id == identities.c.organization_id,
        members.c.user_id == identities.c.user_id,
    )
    query = sa.select(identities.c.organization_id, identities.c.user_id).where(
        _of(person),
        identities.c.user_id != "",
        identities.c.organization_id.in_(live),
        is_member,
    )
    rows = await connection.execute(query.order_by(identities.c.created_at))
    return [(row.organization_id, row.user_id) for row in rows]


async def is_known(connection: AsyncConnection, person: IssuerPerson, organization_id: str) -> bool:
    """Returns True if an organization has taken this subject for somebody, a member now or not.

    Another provider of the same issuer may have vouched for them.
    """
    query = sa.exists().where(
        identities.c.issuer == person.issuer,
        identities.c.subject == person.subject,
        identities.c.organization_id == organization_id,
    )
    return bool(await connection.scalar(sa.select(query)))


async def user_of(connection: AsyncConnection, person: IssuerPerson, organization_id: str) -> str:
    """The person's id in an organization; empty where it does not know them, or no more."""
    query = sa.select(identities.c.user_id).where(
        _of(person), identities.c.organization_id == organization_id
    )
    return (await connection.execute(query)).scalar_one_or_none() or ""


async def identify(
    connection: AsyncConnection, person: IssuerPerson, organization_id: str, user_id: str
) -> None:
    """Notes whom an organization takes a subject of an issuer for."""
    identity = {
        "provider_id": person.provider_id,
        "issuer": person.issuer,
        "subject": person.subject,
        "organization_id": organization_id,
        "user_id": user_id,
        "created_at": now_seconds(),
    }
    # Who left is known by nothing but the subject, and may be somebody again.
    statement = insert(identities).values(identity)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["provider_id", "subject", "organization_id"],
            set_={"user_id": user_id},
            where=identities.c.user_id == "",
        )
    )


def _of(person: IssuerPerson) -> sa.ColumnElement[bool]:
    return sa.and_(
        identities.c.provider_id == person.provider_id, identities.c.subject == person.subject
    )
