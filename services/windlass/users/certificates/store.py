"""Every query on certificates that organizations trust."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_CERTIFICATES
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from windlass.users.certificates.domain import Caller, TrustedCertificate, unknown_certificate
from windlass.users.client_demands.tables import active_certificates as active
from windlass.users.client_demands.tables import certificates
from windlass.users.keys.revocation import note_organization, take_turn


class CertificateStore:
    """Certificates by organization. Where they become active, keys are asked about again."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, one: TrustedCertificate) -> TrustedCertificate:
        """Stores a certificate; raises InvalidArgument for too many, and AlreadyExists."""
        own = certificates.c.organization_id == one.organization_id
        row = {column.name: getattr(one, column.name) for column in certificates.c}
        async with self._database.begin() as connection:
            await _take_turn(connection, one.organization_id)
            count = sa.select(sa.func.count()).select_from(certificates).where(own)
            if (await connection.execute(count)).scalar_one() >= MAX_CERTIFICATES:
                raise InvalidArgument(
                    f"There may be {MAX_CERTIFICATES} certificates.", param="certificate"
                )
            statement = insert(certificates).values(row).on_conflict_do_nothing()
            if (await connection.execute(statement.returning(certificates.c.id))).first() is None:
                raise AlreadyExists("This certificate is there already.", param="certificate")
        return one

    async def get(self, organization_id: str, certificate_id: str) -> TrustedCertificate:
        """Returns one of the organization; raises NotFound."""
        async with self._database.autocommit() as connection:
            return await _get(connection, organization_id, certificate_id)

    async def list(
        self, organization_id: str, project_id: str, *, oldest_first: bool, after: str, limit: int
    ) -> Sequence[TrustedCertificate]:
        """Lists those of the organization, by their creation, and which are active in a scope."""
        own = certificates.c.organization_id == organization_id
        query = by_creation(
            _all(organization_id, project_id),
            certificates.c.created_at,
            certificates.c.id,
            after=after,
            of=own,
            oldest_first=oldest_first,
        )
        async with self._database.autocommit() as connection:
            return [_record(row) for row in await connection.execute(query.limit(limit))]

    async def rename(
        self, organization_id: str, certificate_id: str, name: str
    ) -> tuple[TrustedCertificate, TrustedCertificate]:
        """Changes a name; returns what was and what is. Raises NotFound."""
        async with self._database.begin() as connection:
            await _take_turn(connection, organization_id)
            before = await _get(connection, organization_id, certificate_id)
            where = certificates.c.id == before.id
            await connection.execute(certificates.update().where(where).values(name=name))
        return before, replace(before, name=name)

    async def delete(self, organization_id: str, certificate_id: str) -> TrustedCertificate:
        """Forgets one; raises NotFound, and FailedPrecondition `certificate_in_use`."""
        async with self._database.begin() as connection:
            await _take_turn(connection, organization_id)
            found = await _get(connection, organization_id, certificate_id)
            used = active.select().where(active.c.certificate_id == found.id)
            if (await connection.execute(used.limit(1))).first() is not None:
                raise FailedPrecondition(
                    "The certificate is active in the organization or in a project of it. "
                    "Deactivate it first.",
                    reason="certificate_in_use",
                    param="certificate_id",
                )
            await connection.execute(certificates.delete().where(certificates.c.id == found.id))
        return found

    async def change(
        self,
        organization_id: str,
        project_id: str,
        ids: Collection[str],
        caller: Caller,
        *,
        to_active: bool,
    ) -> Sequence[tuple[TrustedCertificate, bool]]:
        """Demands some certificates in a scope, or no longer; each with whether it changed.

        Raises NotFound, InvalidArgument for one that has expired, and what `Caller` does.
        """
        async with self._database.begin() as connection:
            await _take_turn(connection, organization_id)
            now = await connection.execute(_all(organization_id, ""))
            caller.require_admitted([row.der for row in now if row.active])
            rows = await connection.execute(_all(organization_id, project_id))
            known = {one.id: one for one in map(_record, rows)}
            for name in ids:
                if name not in known:
                    raise unknown_certificate(name, "certificate_ids")
            changed = [known[name] for name in ids if known[name].active is not to_active]
            if to_active:
                _require_unexpired(changed)
            known |= {one.id: replace(one, active=to_active) for one in changed}
            if changed:
                caller.require_way_in([one.der for one in known.values() if one.active])
                await _put(connection, organization_id, project_id, changed, to_active=to_active)
        new = {one.id for one in changed}
        return [(known[name], name in new) for name in ids]

    async def deactivate_all(self, organization_id: str) -> Sequence[str]:
        """Demands nothing any more, in no project either; returns what was active."""
        async with self._database.begin() as connection:
            await _take_turn(connection, organization_id)
            ended = await connection.execute(
                active.delete()
                .where(active.c.organization_id == organization_id)
                .returning(active.c.certificate_id)
            )
            await note_organization(connection, organization_id)
            return sorted(set(ended.scalars()))


async def _take_turn(connection: AsyncConnection, organization_id: str) -> None:
    await take_turn(connection, organization_id, of="certificates")


async def _get(
    connection: AsyncConnection, organization_id: str, certificate_id: str
) -> TrustedCertificate:
    query = _all(organization_id, "").where(certificates.c.id == certificate_id)
    row = (await connection.execute(query)).first()
    if row is None:
        raise unknown_certificate(certificate_id)
    return _record(row)


def _all(organization_id: str, project_id: str) -> sa.Select[Any]:
    its = sa.and_(
        active.c.certificate_id == certificates.c.id,
        active.c.organization_id == organization_id,
        active.c.project_id == project_id,
    )
    return sa.select(certificates, sa.exists().where(its).label("active")).where(
        certificates.c.organization_id == organization_id
    )


def _require_unexpired(some: Collection[TrustedCertificate]) -> None:
    for one in some:
        if one.expires_at <= now_seconds():
            raise InvalidArgument(
                f"{one.id} has expired, and would admit nobody.",
                reason="invalid_certificate",
                param="certificate_ids",
            )


async def _put(
    connection: AsyncConnection,
    organization_id: str,
    project_id: str,
    changed: Collection[TrustedCertificate],
    *,
    to_active: bool,
) -> None:
    scope = {"organization_id": organization_id, "project_id": project_id}
    if to_active:
        rows = [scope | {"certificate_id": one.id} for one in changed]
        await connection.execute(active.insert(), rows)
    else:
        await connection.execute(
            active.delete().where(
                active.c.organization_id == organization_id,
                active.c.project_id == project_id,
                active.c.certificate_id.in_([one.id for one in changed]),
            )
        )
    await note_organization(connection, organization_id)


def _record(row: Any) -> TrustedCertificate:
    return TrustedCertificate(**{name: getattr(row, name) for name in TrustedCertificate.__slots__})
