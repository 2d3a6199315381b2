"""Changes of keys that live: rotation, and what they are narrowed to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from windlass.users.domain import ApiKey
from windlass.users.keys import restrictions
from windlass.users.keys.revocation import revoke_where, take_turn
from windlass.users.keys.store import below, key_of, require_live, unknown_key
from windlass.users.tables import api_keys, key_changes

_SETTINGS = ("name", "scopes", "networks", "expires_at")


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret to take the place of another, by its digest, and how long both answer."""

    digest: bytes
    redacted: str
    overlap_seconds: int


class KeyChanges:
    """Changes of keys of an organization, made with the key `by`."""

    def __init__(self, database: Database):
        self._database = database

    async def rotate(self, organization_id: str, key_id: str, new: NewSecret, *, by: str) -> ApiKey:
        """Gives a key another secret; raises NotFound, PermissionDenied, FailedPrecondition.

        With a key that it was not made with, it is made anew: it ends with that one, and rests on
        those on whom that one rests, since they have seen the secret.
        """
        async with self._database.begin() as connection:
            await take_turn(connection)
            key = await _locked(connection, organization_id, key_id)
            if by not in (key_id, *await _above(connection, key_id)):
                key = await _made_anew(connection, key, by)
                if new.overlap_seconds:
                    raise FailedPrecondition(
                        "Two secrets answer only where the key is rotated with itself or with one "
                        f"that it was made with, and {by} is neither. Leave out the overlap.",
                        reason="foreign_rotation",
                        param="overlap",
                    )
            now = now_seconds()
            key = replace(
                key,
                redacted=new.redacted,
                rotated_at=now,
                previous_until=now + new.overlap_seconds if new.overlap_seconds else 0,
            )
            await connection.execute(
                api_keys.update()
                .where(api_keys.c.id == key_id)
                .values(
                    previous_digest=api_keys.c.digest if new.overlap_seconds else None,
                    digest=new.digest,
                    **_values(key, "redacted", "rotated_at", "previous_until", "parent_key_id"),
                    **_values(key, "rests_on", *_SETTINGS[1:]),
                )
            )
            await _tell(connection, key_id)
            await _narrow_below(connection, key)
        return key

    async def update(
        self, organization_id: str, key_id: str, change: Callable[[ApiKey], ApiKey], *, by: str
    ) -> ApiKey:
        """Changes the settings of a key, and narrows those that were made with it.

        `change` is given the key as it stands. Raises NotFound, and InvalidArgument for one that
        would be wider than the key that it was made with or than `by`.
        """
        async with self._database.begin() as connection:
            await take_turn(connection)
            before = await _locked(connection, organization_id, key_id)
            key = change(before)
            for bound in sorted({key.parent_key_id, by} - {""}):
                restrictions.require_change(before, key, await _present(connection, bound))
            await connection.execute(
                api_keys.update().where(api_keys.c.id == key_id).values(_values(key, *_SETTINGS))
            )
            await _tell(connection, key_id)
            await _narrow_below(connection, key)
        return key

    async def note_uses(self, addresses: Mapping[str, str]) -> None:
        """Notes that keys were used now, each from an address."""
        statement = (
            api_keys.update()
            .where(api_keys.c.id == sa.bindparam("key"))
            .values(last_used_at=now_seconds(), last_used_address=sa.bindparam("address"))
        )
        # In one order, so that two gateways never wait for each other.
        rows = [{"key": key, "address": addresses[key]} for key in sorted(addresses)]
        if rows:
            async with self._database.begin() as connection:
                await connection.execute(statement, rows)


def _values(key: ApiKey, *names: str) -> dict[str, object]:
    return {name: getattr(key, name) for name in names}


async def _tell(connection: AsyncConnection, *keys: str) -> None:
    """Makes holders of cached keys ask again."""
    await connection.execute(key_changes.insert(), [{"key_id": key} for key in keys])


async def _locked(connection: AsyncConnection, organization_id: str, key_id: str) -> ApiKey:
    """A live key that nobody else changes until the end of the transaction."""
    query = api_keys.select().where(
        api_keys.c.id == key_id, api_keys.c.organization_id == organization_id
    )
    row = (await connection.execute(query.with_for_update())).first()
    if row is None:
        raise unknown_key(key_id)
    key = key_of(row)
    if key.revoked_at or 0 < key.expires_at <= now_seconds():
        raise FailedPrecondition("This API key has ended. Make another.", param="key_id")
    return key


async def _present(connection: AsyncConnection, key_id: str) -> ApiKey:
    """A live key that does not end until the end of the transaction."""
    query = api_keys.select().where(api_keys.c.id == key_id).with_for_update(read=True)
    row = (await connection.execute(query)).first()
    if row is None:
        raise InvalidArgument("The API key that this one was made with was deleted.")
    key = key_of(row)
    require_live(key)
    return key


async def _above(connection: AsyncConnection, key_id: str) -> set[str]:
    """The keys that one was made with, one with the other."""
    line = (
        sa.select(api_keys.c.parent_key_id.label("id"))
        .where(api_keys.c.id == key_id)
        .cte("line", recursive=True)
    )
    line = line.union(sa.select(api_keys.c.parent_key_id).join(line, api_keys.c.id == line.c.id))
    return set((await connection.execute(sa.select(line.c.id))).scalars()) - {""}


async def _made_anew(connection: AsyncConnection, key: ApiKey, by: str) -> ApiKey:
    """The key as one that is made with `by`."""
    if key.id in await _above(connection, by):
        raise PermissionDenied("A key cannot rotate one that it was made with.", param="key_id")
    parent = await _present(connection, by)
    return replace(below(parent, key), parent_key_id=by)


async def _narrow_below(connection: AsyncConnection, key: ApiKey) -> None:
    """Narrows what was made with a key to what the key is now, one generation after the other."""
    generation = [key]
    while generation:
        bounds = {one.id: one for one in generation}
        query = api_keys.select().where(
            api_keys.c.parent_key_id.in_(bounds), api_keys.c.revoked_at == 0
        )
        rows = await connection.execute(query.order_by(api_keys.c.id).with_for_update())
        generation = []
        for child in map(key_of, rows):
            narrowed = restrictions.cut(child, bounds[child.parent_key_id])
            if narrowed is None:
                await revoke_where(connection, api_keys.c.id == child.id)
            elif narrowed != child:
                await connection.execute(
                    api_keys.update()
                    .where(api_keys.c.id == child.id)
                    .values(_values(narrowed, *_SETTINGS))
                )
                await _tell(connection, child.id)
                generation.append(narrowed)
