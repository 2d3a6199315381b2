"""Every query on registration keys and credentials of agents.

A rotated credential is good until a minute after its successor was first used: an agent
that never got the successor, since the answer was lost, can still ask for another.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.clusters.domain import records
from windlass.clusters.domain.policy import OperatorPolicy
from windlass.clusters.domain.records import Holder, Issued
from windlass.clusters.storage.clusters import ClusterStore, unregistered
from windlass.clusters.storage.tables import clusters, credentials, registration_keys
from windlass.core.db import Database
from windlass.core.errors import AlreadyExists, FailedPrecondition, NotFound, Unauthenticated

# What is over stays this long, so that an agent that was away hears why it is refused.
KEPT = timedelta(days=30)
# Of one cluster, whatever its agent does.
MAX_KEPT = 16
GRACE = timedelta(seconds=60)

_NEVER = sa.text("'infinity'::timestamptz")


def expired() -> Unauthenticated:
    """The error for an agent whose credential has expired."""
    return Unauthenticated(
        "The agent's credential has expired; `windlass clusters rekey` gives a new registration "
        "key.",
        reason="credential_expired",
    )


class CredentialStore:
    """Registration keys and credentials; one expires after `lifetime_seconds`."""

    def __init__(self, database: Database, clusters: ClusterStore, *, lifetime_seconds: float):
        self._database = database
        self._clusters = clusters
        self._lifetime = timedelta(seconds=lifetime_seconds)

    async def register(self, name: str, policy: OperatorPolicy, key_digest: bytes) -> str:
        """A new cluster and the key that enrols its agent; raises AlreadyExists."""
        async with self._database.begin() as connection:
            cluster_id = await self._clusters.insert(connection, name, policy)
            if cluster_id is None:
                raise AlreadyExists(f"A cluster {name!r} already exists.", param="name")
            await _add_key(connection, cluster_id, key_digest)
        return cluster_id

    async def rekey(self, cluster_id: str, key_digest: bytes) -> None:
        """A new key for a cluster; its older ones end. Raises NotFound."""
        keys = registration_keys.c
        async with self._database.begin() as connection:
            if not await _lock(connection, cluster_id):
                raise NotFound(f"The cluster {cluster_id!r} does not exist.", param="cluster_id")
            await connection.execute(
                registration_keys.delete().where(
                    keys.cluster_id == cluster_id, keys.used_at.is_(None)
                )
            )
            await _add_key(connection, cluster_id, key_digest)

    async def enroll(self, key_digest: bytes, digest: bytes) -> Issued:
        """Spends a registration key for a credential; raises Unauthenticated."""
        keys = registration_keys.c
        whose = sa.select(keys.cluster_id).where(keys.digest == key_digest)
        spend = (
            registration_keys.update()
            .where(
                keys.digest == key_digest, keys.used_at.is_(None), keys.expires_at > sa.func.now()
            )
            .values(used_at=sa.func.now())
        )
        async with self._database.begin() as connection:
            cluster_id = str((await connection.execute(whose)).scalar() or "")
            # The cluster before its key, in the order of what ends keys, or two deadlock.
            known = await _lock(connection, cluster_id)
            if not known or (await connection.execute(spend)).rowcount == 0:
                raise Unauthenticated(
                    "The registration key is unknown, used or expired.",
                    reason="invalid_registration_key",
                )
            return await self._issue(connection, cluster_id, digest)

    async def note_run_folder(self, digest: bytes, folder: str) -> str:
        """Records where the sockets of the agent inside a server lie; returns its cluster.

        Raises Unauthenticated.
        """
        async with self._database.begin() as connection:
            found = await _find(connection, digest)
            await connection.execute(
                clusters.update().where(clusters.c.id == found.cluster_id).values(run_folder=folder)
            )
        return str(found.cluster_id)

    async def enroll_local(self, name: str, policy: OperatorPolicy, digest: bytes) -> Issued:
        """A new cluster with a credential that never ends; a taken name gets a number.

        It lies in the server's own data folder, beside keys worth more: a reader of
        that folder gains nothing by it, and a machine that slept must not lose its agent.
        """
        async with self._database.begin() as connection:
            cluster_id, number = await self._clusters.insert(connection, name, policy), 2
            while cluster_id is None:
                suffix = f"-{number}"
                shortened = name[: 63 - len(suffix)] + suffix
                cluster_id = await self._clusters.insert(connection, shortened, policy)
                number += 1
            await connection.execute(
                credentials.insert().values(digest=digest, cluster_id=cluster_id)
            )
        return Issued(cluster_id)

    async def rotate(self, cluster_id: str, current: bytes, digest: bytes) -> Issued:
        """Issues the successor of a credential; drops a successor that was never used.

        Raises FailedPrecondition `credential_superseded` for one that has a successor in
        use, Unauthenticated for one that is not valid.
        """
        async with self._database.begin() as connection:
            if not await _lock(connection, cluster_id):
                raise unregistered()
            mine = await _find(connection, current)
            newer = sa.select(sa.func.count()).where(
                credentials.c.cluster_id == cluster_id,
                credentials.c.used_at.is_not(None),
                credentials.c.created_at > mine.created_at,
            )
            if (await connection.execute(newer)).scalar_one():
                raise FailedPrecondition(
                    "A newer credential of this cluster is in use.", reason="credential_superseded"
                )
            if mine.expires_at is None:
                raise FailedPrecondition(
                    "This credential does not expire.", reason="credential_permanent"
                )
            return await self._issue(connection, cluster_id, digest)

    async def _issue(self, connection: AsyncConnection, cluster_id: str, digest: bytes) -> Issued:
        here = credentials.c.cluster_id == cluster_id
        await connection.execute(credentials.delete().where(here, credentials.c.used_at.is_(None)))
        await self._trim(connection, cluster_id)
        insert = (
            credentials.insert()
            .values(
                digest=digest,
                cluster_id=cluster_id,
                created_at=sa.func.clock_timestamp(),
                expires_at=sa.func.clock_timestamp() + self._lifetime,
            )
            .returning(credentials.c.expires_at)
        )
        expires_at = (await connection.execute(insert)).scalar_one()
        return Issued(cluster_id, _seconds(expires_at))

    async def _trim(self, connection: AsyncConnection, cluster_id: str) -> None:
        """Drops older credentials so that at most one other stays valid."""
        here = credentials.c.cluster_id == cluster_id
        ranked = (
            sa.select(credentials.c.digest).where(here).order_by(credentials.c.created_at.desc())
        )
        too_old = ranked.offset(MAX_KEPT - 1)
        await connection.execute(
            credentials.delete().where(here, credentials.c.digest.in_(too_old))
        )
        await connection.execute(
            credentials.update()
            .where(here, credentials.c.digest.in_(ranked.offset(1)), _valid())
            .values(expires_at=sa.func.now())
        )

    async def authenticate(self, digest: bytes) -> Holder:
        """Returns whose a credential is; raises Unauthenticated. Its first use ends its
        predecessor.
        """
        async with self._database.autocommit() as connection:
            found = await _find(connection, digest)
        if found.used_at is None:
            await self._note_use(found.cluster_id, digest)
        return Holder(found.cluster_id, found.name, _seconds(found.expires_at))

    async def ended(self, digests: Iterable[bytes]) -> dict[bytes, Unauthenticated]:
        """The credentials that are not valid, each with the error of a call with it."""
        asked = set(digests)
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(_VALIDITY, {"digests": list(asked)})).all()
        valid = {row.digest: row.valid for row in rows}
        gone = {digest: unregistered() for digest in asked - valid.keys()}
        return gone | {digest: expired() for digest, good in valid.items() if not good}

    async def _note_use(self, cluster_id: str, digest: bytes) -> None:
        """Marks a credential as used; older ones expire within a minute."""
        used = (
            credentials.update()
            .where(credentials.c.digest == digest, credentials.c.used_at.is_(None))
            .values(used_at=sa.func.now())
        )
        end = sa.func.least(
            sa.func.coalesce(credentials.c.expires_at, _NEVER), sa.func.now() + GRACE
        )
        before = (
            credentials.update()
            .where(credentials.c.cluster_id == cluster_id, credentials.c.digest != digest)
            .values(expires_at=end)
        )
        async with self._database.begin() as connection:
            await _lock(connection, cluster_id)
            if (await connection.execute(used)).rowcount:
                await connection.execute(before)

    async def sweep(self) -> None:
        """Drops long expired rows, but never the last credential of a cluster."""
        now = sa.func.now()
        other = credentials.alias()
        newer = sa.exists().where(
            other.c.cluster_id == credentials.c.cluster_id,
            other.c.created_at > credentials.c.created_at,
        )
        async with self._database.begin() as connection:
            await connection.execute(
                registration_keys.delete().where(
                    registration_keys.c.expires_at < now - timedelta(days=1)
                )
            )
            # What somebody else holds is left to the next time.
            over = (
                sa.select(credentials.c.digest)
                .where(credentials.c.expires_at < now - KEPT, newer)
                .with_for_update(skip_locked=True)
            )
            await connection.execute(credentials.delete().where(credentials.c.digest.in_(over)))


async def _add_key(connection: AsyncConnection, cluster_id: str, digest: bytes) -> None:
    await connection.execute(
        registration_keys.insert().values(
            digest=digest,
            cluster_id=cluster_id,
            expires_at=sa.func.now() + timedelta(seconds=records.REGISTRATION_SECONDS),
        )
    )


async def _lock(connection: AsyncConnection, cluster_id: str) -> bool:
    """Holds the cluster's row, so that its credentials change one after the other."""
    query = sa.select(clusters.c.id).where(clusters.c.id == cluster_id).with_for_update()
    return (await connection.execute(query)).first() is not None


async def _find(connection: AsyncConnection, digest: bytes) -> Any:
    """A valid credential's row with its cluster's name; raises Unauthenticated."""
    query = (
        sa.select(credentials, clusters.c.name, _valid().label("valid"))
        .join_from(credentials, clusters, clusters.c.id == credentials.c.cluster_id)
        .where(credentials.c.digest == digest)
    )
    row = (await connection.execute(query)).first()
    if row is None:
        raise unregistered()
    if not row.valid:
        raise expired()
    return row


def _valid() -> sa.ColumnElement[bool]:
    ends = credentials.c.expires_at
    return sa.or_(ends.is_(None), ends > sa.func.now())


# Made once, since it is asked all the time.
_VALIDITY = (
    sa.select(credentials.c.digest, _valid().label("valid"))
    .join_from(credentials, clusters, clusters.c.id == credentials.c.cluster_id)
    .where(credentials.c.digest == sa.any_(sa.bindparam("digests", type_=ARRAY(sa.LargeBinary))))
)


def _seconds(moment: datetime | None) -> int:
    return math.ceil(moment.timestamp()) if moment is not None else 0
