"""Every query on mail domains."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_MAIL_DOMAINS
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from windlass.users.identity.tables import mail_domains
from windlass.users.keys.revocation import take_turn
from windlass.users.tables import organizations

# A verified domain whose record stays away for so long is not the organization's any more.
GRACE_SECONDS = 3 * 86_400
CHECKED_EVERY = 86_400
_live = sa.select(organizations.c.id).where(organizations.c.deleted_at == 0)


@dataclass(frozen=True, slots=True)
class MailDomain:
    """A domain of mail addresses that an organization claims."""

    name: str
    organization_id: str
    # What its TXT record has to say.
    token: str
    default_role: str
    verified_at: int = 0
    missing_since: int = 0
    checked_at: int = 0
    created_at: int = 0


class MailDomainStore:
    """Mail domains of organizations."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, organization_id: str, name: str, *, role: str) -> MailDomain:
        """Stores a claim; raises AlreadyExists, and InvalidArgument where there are too many."""
        token = secrets.token_urlsafe(32)
        made = MailDomain(name, organization_id, token, role, created_at=now_seconds())
        own = mail_domains.c.organization_id == organization_id
        row = {field: getattr(made, field) for field in MailDomain.__slots__}
        try:
            async with self._database.begin() as connection:
                await take_turn(connection, organization_id, of="mail domains")
                count = sa.select(sa.func.count()).select_from(mail_domains).where(own)
                if (await connection.execute(count)).scalar_one() >= MAX_MAIL_DOMAINS:
                    message = f"There may be {MAX_MAIL_DOMAINS} domains."
                    raise InvalidArgument(message, param="name")
                await connection.execute(mail_domains.insert().values(row))
        except IntegrityError as error:
            raise AlreadyExists(f"{name} is claimed already.", param="name") from error
        return made

    async def get(self, organization_id: str, name: str) -> MailDomain:
        """Returns a domain of the organization; raises NotFound."""
        query = mail_domains.select().where(_one(organization_id, name))
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_domain(name)
        return _domain(row)

    async def list(self, organization_id: str, *, after: str, limit: int) -> Sequence[MailDomain]:
        """Domains of the organization, newest first."""
        own = mail_domains.c.organization_id == organization_id
        query = by_creation(
            mail_domains.select().where(own),
            mail_domains.c.created_at,
            mail_domains.c.name,
            after=after,
            of=own,
            oldest_first=False,
        )
        async with self._database.autocommit() as connection:
            return [_domain(row) for row in await connection.execute(query.limit(limit))]

    async def set_role(self, organization_id: str, name: str, role: str) -> MailDomain:
        """Changes what its people become; raises NotFound."""
        statement = mail_domains.update().where(_one(organization_id, name))
        async with self._database.begin() as connection:
            changed = statement.values(default_role=role).returning(*mail_domains.c)
            row = (await connection.execute(changed)).first()
        if row is None:
            raise unknown_domain(name)
        return _domain(row)

    async def delete(self, organization_id: str, name: str) -> None:
        """Gives a domain up; raises NotFound."""
        statement = mail_domains.delete().where(_one(organization_id, name))
        async with self._database.begin() as connection:
            if not (await connection.execute(statement)).rowcount:
                raise unknown_domain(name)

    async def holder(self, name: str) -> MailDomain | None:
        """The claim that is verified, of whatever organization."""
        query = mail_domains.select().where(mail_domains.c.name == name, _verified())
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        return _domain(row) if row else None

    async def prove(self, claim: MailDomain, *, instead_of: str = "") -> MailDomain:
        """Notes that a claim is proven, and not that of another organization any more.

        Raises NotFound for a claim that was given up, and FailedPrecondition `domain_taken`.
        """
        now = now_seconds()
        proven = {"verified_at": claim.verified_at or now, "missing_since": 0, "checked_at": now}
        one = _one(claim.organization_id, claim.name)
        statement = mail_domains.update().where(one).values(proven).returning(*mail_domains.c)
        lost = mail_domains.update().where(_one(instead_of, claim.name)).values(verified_at=0)
        try:
            async with self._database.begin() as connection:
                if instead_of:
                    await connection.execute(lost)
                row = (await connection.execute(statement)).first()
        except IntegrityError as error:
            raise taken_domain(claim.name) from error
        if row is None:
            raise unknown_domain(claim.name)
        return _domain(row)

    async def miss(self, claim: MailDomain) -> None:
        """Notes that the record of a verified claim is missing, which it may be for days."""
        now = now_seconds()
        table = mail_domains.c
        since = sa.case((table.missing_since > 0, table.missing_since), else_=now)
        is_over = sa.and_(table.missing_since > 0, table.missing_since <= now - GRACE_SECONDS)
        values = {
            "checked_at": now,
            "missing_since": since,
            "verified_at": sa.case((is_over, 0), else_=table.verified_at),
        }
        one = _one(claim.organization_id, claim.name)
        async with self._database.begin() as connection:
            await connection.execute(mail_domains.update().where(one).values(values))

    async def due(self, limit: int) -> Sequence[MailDomain]:
        """Verified claims whose record nobody has looked at for a day."""
        old = mail_domains.c.checked_at <= now_seconds() - CHECKED_EVERY
        query = mail_domains.select().where(_verified(), old)
        query = query.order_by(mail_domains.c.checked_at).limit(limit)
        async with self._database.autocommit() as connection:
            return [_domain(row) for row in await connection.execute(query)]

    async def organization_of(self, email: str) -> str:
        """The live organization to which the domain of an address belongs; empty for none."""
        async with self._database.autocommit() as connection:
            found = await verified_domain(connection, email)
        return found.organization_id if found else ""

    async def any_verified(self) -> bool:
        """True if a domain belongs to some organization."""
        async with self._database.autocommit() as connection:
            return bool(await connection.scalar(sa.select(sa.exists().where(_verified()))))


async def verified_domain(connection: AsyncConnection, email: str) -> MailDomain | None:
    """The verified domain that an address is in, of a live organization."""
    name = email.rpartition("@")[2].lower()
    query = mail_domains.select().where(
        mail_domains.c.name == name, _verified(), mail_domains.c.organization_id.in_(_live)
    )
    row = (await connection.execute(query)).first() if name else None
    return _domain(row) if row else None


def unknown_domain(name: str) -> NotFound:
    """The error of a domain that is not there, or not the caller's."""
    return NotFound(f"No domain {name[:253]!r}.", param="name")


def taken_domain(name: str) -> FailedPrecondition:
    """The error of a domain that another organization proves."""
    message = f"Another organization proves that {name} is its own."
    return FailedPrecondition(message, reason="domain_taken", param="name")


def _verified() -> sa.ColumnElement[bool]:
    return mail_domains.c.verified_at > 0


def _one(organization_id: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(mail_domains.c.organization_id == organization_id, mail_domains.c.name == name)


def _domain(row: Any) -> MailDomain:
    return MailDomain(**{field: getattr(row, field) for field in MailDomain.__slots__})
