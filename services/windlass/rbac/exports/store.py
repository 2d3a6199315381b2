"""Every query on destinations; their secrets are sealed."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.core.keyring import Envelope
from windlass.core.rpc import audited
from windlass.rbac.exports.destinations import Destination
from windlass.rbac.tables import audit_chains, audit_destinations

# Of an organization.
MAX_DESTINATIONS = 10
_NAMES = tuple(Destination.__slots__)


class DestinationStore:
    """Destinations of every organization."""

    def __init__(self, database: Database, envelope: Envelope):
        self._database = database
        self._envelope = envelope

    async def create(self, destination: Destination, secret: bytes, *, from_now: bool) -> None:
        """Stores a new one, which gets the whole log or what comes from now on.

        Raises FailedPrecondition for one too many.
        """
        own = audit_destinations.c.organization_id == destination.organization_id
        key = sa.func.hashtextextended(f"audit destinations {destination.organization_id}", 0)
        count = sa.select(sa.func.count()).where(own)
        # Locked, so that the retention drops nothing meanwhile that this one is to get.
        chain = (
            sa.select(audit_chains.c.sequence, audit_chains.c.dropped_sequence)
            .where(audit_chains.c.id == destination.organization_id)
            .with_for_update()
        )
        async with self._database.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
            if (await connection.execute(count)).scalar_one() >= MAX_DESTINATIONS:
                raise FailedPrecondition(
                    f"An organization has at most {MAX_DESTINATIONS} destinations. "
                    "Delete one first.",
                    reason="too_many_destinations",
                )
            last, dropped = (await connection.execute(chain)).first() or (0, 0)
            await connection.execute(
                audit_destinations.insert().values(
                    **asdict(destination),
                    secret=self._envelope.seal(secret, context=destination.id),
                    sequence=last if from_now else dropped,
                    delivered_at=0,
                    failures=0,
                    error="",
                    not_before_ms=0,
                )
            )
        # Of its address the host alone: the rest may be a secret of its receiver's.
        told = {name: getattr(destination, name) for name in ("id", "name", "kind", "bucket")}
        audited.change(None, {**told, "host": destination.host}, resource=destination.id)

    async def list(
        self, organization_id: str, *, only: str = "", after: str = "", limit: int
    ) -> Sequence[Any]:
        """Rows of the organization, newest first, each with the log's last event as `last`."""
        own = audit_destinations.c.organization_id == organization_id
        last = (
            sa.select(audit_chains.c.sequence)
            .where(audit_chains.c.id == audit_destinations.c.organization_id)
            .scalar_subquery()
        )
        query = sa.select(audit_destinations, sa.func.coalesce(last, 0).label("last")).where(own)
        if only:
            query = query.where(audit_destinations.c.id == only)
        query = newest_first(
            query, audit_destinations.c.created_at, audit_destinations.c.id, after=after, of=own
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query.limit(limit))).all()

    async def get(self, organization_id: str, destination_id: str) -> Any:
        """Returns one row of the organization; raises NotFound."""
        found = await self.list(organization_id, only=destination_id, limit=1)
        if not found or not destination_id:
            raise _unknown(destination_id)
        return found[0]

    async def delete(self, organization_id: str, destination_id: str) -> None:
        """Ends its deliveries; raises NotFound."""
        statement = audit_destinations.delete().where(
            audit_destinations.c.organization_id == organization_id,
            audit_destinations.c.id == destination_id,
        )
        async with self._database.begin() as connection:
            row = (await connection.execute(statement.returning(audit_destinations))).first()
        if row is None:
            raise _unknown(destination_id)
        audited.change({name: getattr(row, name) for name in ("id", "name", "kind")}, None)

    def secret(self, row: Any) -> bytes:
        """The secret of a row."""
        return self._envelope.open(row.secret, context=row.id)


def destination_of(row: Any) -> Destination:
    """The destination of a row."""
    return Destination(**{name: getattr(row, name) for name in _NAMES})


def _unknown(destination_id: str) -> NotFound:
    return NotFound(f"No audit destination {destination_id[:64]!r}.", param="destination_id")
