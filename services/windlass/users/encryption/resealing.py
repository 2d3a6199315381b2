"""Seals projects' secrets and object keys by their current data keys.

Leased work, with which any replica goes on.
"""

import sqlalchemy as sa

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.errors import AppError
from windlass.core.keyring.envelope import mark_of
from windlass.core.killpoints import reach
from windlass.users.encryption.data_keys import data_key
from windlass.users.encryption.domain import DataKey, object_key_context
from windlass.users.encryption.object_keys import ObjectKeyStore
from windlass.users.encryption.project_keys import ProjectDataKeys
from windlass.users.encryption.secrets import SecretStore, context_of
from windlass.users.tables import data_keys, secrets

log = telemetry.logger("users.data_keys")
TOPIC = "users.data_keys"
LEASE_SECONDS = 60.0
# Secrets of one query, and the pause after a keeper did not open some.
AT_ONCE, RETRY_SECONDS = 50, 60
_UNSETTLED = sa.and_(data_keys.c.retired_at == 0, sa.not_(data_keys.c.settled))
_MARK = sa.func.substring(secrets.c.envelope, 1, sa.func.length(data_keys.c.mark))


class Resealing:
    """Finds what another key sealed than the project's current one, and seals it anew."""

    def __init__(
        self,
        database: Database,
        keys: ProjectDataKeys,
        store: SecretStore,
        object_keys: ObjectKeyStore,
    ):
        self._database = database
        self._object_keys = object_keys
        self._keys = keys
        self._secrets = store
        self.has_none = no_rows(database, _UNSETTLED)

    async def begin(self) -> None:
        """Looks for what other releases sealed since, or before there was a root key."""
        otherwise = (
            sa.exists()
            .where(secrets.c.project_id == data_keys.c.project_id, data_keys.c.mark != _MARK)
            .correlate(data_keys)
        )
        async with self._database.begin() as connection:
            await connection.execute(
                data_keys.update()
                .where(data_keys.c.retired_at == 0, otherwise)
                .values(settled=False)
            )
        for project_id in await self._secrets.projects_sealed_otherwise(self._keys.root_mark):
            await self._seal_all(project_id, self._keys.root_mark)

    async def once(self) -> bool:
        """Seals secrets of one project anew; returns True if there may be more to do."""
        due = sa.and_(_UNSETTLED, data_keys.c.retry_at <= now_seconds())
        token, rows = await claim(self._database, data_keys, due, limit=1, seconds=LEASE_SECONDS)
        for row in rows:
            await self._settle(data_key(row), token)
        return bool(rows)

    async def _settle(self, key: DataKey, token: str) -> None:
        closed = await self._seal_all(key.project_id, key.mark)
        closed = await self._seal_object_keys(key) or closed
        if not closed:
            await self._finish(key, token)
            return
        await self._release(key, token, retry_at=now_seconds() + RETRY_SECONDS)

    async def _seal_all(self, project_id: str, mark: bytes) -> bool:
        """Seals all of a project anew that has another mark; True if some does not open."""
        after, closed, damaged = "", dict[bytes, str](), 0
        while found := await self._secrets.sealed_otherwise(
            project_id, mark, after=after, limit=AT_ONCE
        ):
            for name, envelope in found:
                # What its key does not open is not asked for again at once.
                if (other := mark_of(envelope)) in closed:
                    continue
                try:
                    await self._seal(project_id, name, envelope)
                except AppError as error:
                    closed[other] = error.message
                except ValueError:
                    damaged += 1
            after = found[-1][0]
        if closed or damaged:
            log.warning(
                "secrets_not_resealed",
                project_id=project_id,
                reasons=sorted(closed.values()),
                damaged=damaged,
            )
        return bool(closed or damaged)

    async def _seal(self, project_id: str, name: str, envelope: bytes) -> None:
        """Seals one secret anew; raises AppError, and ValueError for one that is damaged."""
        current = await self._keys.sealing(project_id)
        former = await self._keys.opening(project_id, envelope)
        sealed = current.envelope.rewrap(
            envelope, context=context_of(project_id, name), sealed_by=former
        )
        await self._secrets.replace(project_id, name, envelope, sealed, key=current.key)
        reach("secrets.resealed")

    async def _seal_object_keys(self, key: DataKey) -> bool:
        """Seals keys for objects anew that another data key seals; True if some does not open."""
        reasons = []
        for found in await self._object_keys.sealed_otherwise(key):
            try:
                sealed, former = await self._object_keys.get(key.project_id, found.id)
                current, opening = await self._keys.kept(key), await self._keys.kept(former)
                envelope = current.envelope.rewrap(
                    sealed.envelope,
                    context=object_key_context(key.project_id, found.id),
                    sealed_by=opening.envelope,
                )
                await self._object_keys.replace(sealed, envelope, key=key)
            except (AppError, ValueError) as error:
                reasons.append(str(error))
            reach("object_keys.resealed")
        if reasons:
            log.warning("object_keys_not_resealed", project_id=key.project_id, reasons=reasons)
        return bool(reasons)

    async def _finish(self, key: DataKey, token: str) -> None:
        """Forgets the keys of before, by which nothing is sealed any more."""
        current = sa.and_(data_keys.c.id == key.id, _UNSETTLED, held(data_keys, token))
        former = sa.and_(data_keys.c.project_id == key.project_id, data_keys.c.retired_at > 0)
        async with self._database.begin() as connection:
            settled = data_keys.update().where(current).values(settled=True, **released())
            if (await connection.execute(settled)).rowcount:
                await connection.execute(data_keys.delete().where(former))
        reach("secrets.settled")

    async def _release(self, key: DataKey, token: str, *, retry_at: int) -> None:
        own = sa.and_(data_keys.c.id == key.id, held(data_keys, token))
        values = {"retry_at": retry_at, **released()}
        async with self._database.begin() as connection:
            await connection.execute(data_keys.update().where(own).values(values))
