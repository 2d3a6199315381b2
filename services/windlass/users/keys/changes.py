"""Changes of keys that live: rotation, and what they are narrowed to."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, PermissionDenied
from windlass.core.rpc import audited
from windlass.users.domain import ApiKey
from windlass.users.keys import restrictions
from windlass.users.keys.policies import require_end
from windlass.users.keys.revocation import revoke_where, take_turn
from windlass.users.keys.store import kept_alive, key_of, made_with, unknown_key
from windlass.users.tables import api_keys, key_changes

# One that somebody else changes is left out: to wait for it, others locked, could be for ever.
_NOTE_USES = sa.text(
    "WITH told AS (SELECT * FROM unnest(CAST(:ids AS text[]), CAST(:addresses AS text[]))"
    " AS told (id, address)),"
    " free AS (SELECT id FROM users_api_keys WHERE id = ANY(CAST(:ids AS text[]))"
    " FOR UPDATE SKIP LOCKED)"
    " UPDATE users_api_keys key SET last_used_at = :now, last_used_address = told.address"
    " FROM told JOIN free USING (id) WHERE key.id = told.id"
)
# Keys below one that are wider than it is, whether or not those between them have ended.
_WIDER_BELOW = sa.text(
    "WITH RECURSIVE line AS (SELECT id FROM users_api_keys WHERE parent_key_id = :id UNION"
    " SELECT key.id FROM users_api_keys key JOIN line ON key.parent_key_id = line.id)"
    " SELECT key.* FROM users_api_keys key JOIN line USING (id) WHERE revoked_at = 0 AND ("
    " (:end > 0 AND (expires_at = 0 OR expires_at > :end))"
    " OR (cardinality(CAST(:scopes AS text[])) > 0"
    " AND (scopes = '{}' OR NOT scopes <@ CAST(:scopes AS text[])))"
    " OR (cardinality(CAST(:networks AS text[])) > 0"
    " AND (networks = '{}' OR EXISTS (SELECT FROM unnest(networks) own WHERE NOT EXISTS"
    " (SELECT FROM unnest(CAST(:networks AS text[])) bound WHERE own::cidr <<= bound::cidr))))"
    " OR (cardinality(CAST(:models AS text[])) > 0"
    " AND (models = '{}' OR EXISTS (SELECT FROM unnest(models) own WHERE NOT EXISTS"
    " (SELECT FROM unnest(CAST(:models AS text[])) bound WHERE own = bound"
    " OR (right(bound, 1) = '*' AND starts_with(own, left(bound, -1))))))))"
    " ORDER BY id FOR UPDATE OF key"
)
_LISTS = ("scopes", "networks", "models")
_NARROWED = (*_LISTS, "expires_at")


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
        """Gives a key another secret; raises NotFound, PermissionDenied, FailedPrecondition, and
        InvalidArgument for one that lives longer than the organization's policy asks.

        With a key that it was not made with, it is made anew: it ends with that one, and rests on
        those on whom that one rests, since they have seen the secret.
        """
        async with self._database.begin() as connection:
            await take_turn(connection, organization_id)
            found = key = await _locked(connection, organization_id, key_id)
            if by not in (key_id, *await _above(connection, key_id)):
                if new.overlap_seconds:
                    raise FailedPrecondition(
                        "Two secrets answer only where the key is rotated with itself or with one "
                        f"that it was made with, and {by} is neither. Leave out the overlap.",
                        reason="foreign_rotation",
                        param="overlap",
                    )
                before, key = key, await _made_anew(connection, key, by)
                await _leave_behind(connection, before)
            now = now_seconds()
            key = replace(
                key,
                redacted=new.redacted,
                rotated_at=now,
                previous_until=now + new.overlap_seconds if new.overlap_seconds else 0,
            )
            await require_end(connection, key, "key_id")
            await connection.execute(
                api_keys.update()
                .where(api_keys.c.id == key_id)
                .values(
                    previous_digest=api_keys.c.digest if new.overlap_seconds else None,
                    digest=new.digest,
                    **_values(key, "redacted", "rotated_at", "previous_until", "parent_key_id"),
                    **_values(key, "rests_on", *_NARROWED),
                )
            )
            await _tell(connection, key_id)
            await _narrow_below(connection, key)
        audited.change(found, key)
        return key

    async def update(
        self, organization_id: str, key_id: str, change: Callable[[ApiKey], ApiKey], *, by: str
    ) -> ApiKey:
        """Changes the settings of a key, and narrows those that were made with it.

        `change` is given the key as it stands. Raises NotFound, and InvalidArgument for one that
        would be wider than the key that it was made with or than `by`.
        """
        async with self._database.begin() as connection:
            await take_turn(connection, organization_id)
            before = await _locked(connection, organization_id, key_id)
            key = change(before)
            # Of those that have ended, too: their keys may live, and are no wider.
            above = await _rows(connection, await _above(connection, key_id))
            for bound in (*above, await kept_alive(connection, by)):
                restrictions.require_change(before, key, bound)
            if key.expires_at != before.expires_at:
                await require_end(connection, key, "expires_in")
            await connection.execute(
                api_keys.update()
                .where(api_keys.c.id == key_id)
                .values(_values(key, "name", "tags", *_NARROWED))
            )
            await _tell(connection, key_id)
            if replace(key, name=before.name, tags=before.tags) != before:
                await _narrow_below(connection, key)
        audited.change(before, key)
        return key

    async def note_uses(self, addresses: Mapping[str, str]) -> None:
        """Notes that keys were used now, each from an address."""
        used = {"ids": list(addresses), "addresses": list(addresses.values())}
        async with self._database.begin() as connection:
            await connection.execute(_NOTE_USES, used | {"now": now_seconds()})


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
    if key.kind == "token":
        # It holds no longer than what it was exchanged for.
        raise FailedPrecondition("A workload's token cannot be changed.", param="key_id")
    return key


async def _rows(connection: AsyncConnection, ids: Collection[str]) -> list[ApiKey]:
    """Keys by their ids, ended or not."""
    query = api_keys.select().where(api_keys.c.id.in_(ids))
    return [key_of(row) for row in await connection.execute(query.with_for_update(read=True))]


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
    return made_with(await kept_alive(connection, by), key)


async def _leave_behind(connection: AsyncConnection, key: ApiKey) -> None:
    """Leaves what was made with a key to the one above, whose end must still be theirs."""
    if key.parent_key_id:
        await connection.execute(
            api_keys.update()
            .where(api_keys.c.parent_key_id == key.id)
            .values(parent_key_id=key.parent_key_id)
        )


async def _narrow_below(connection: AsyncConnection, key: ApiKey) -> None:
    """Narrows what was made with a key, and with that, to what the key is now."""
    lists = {name: list(getattr(key, name)) for name in _LISTS}
    bound = {"id": key.id, "end": key.expires_at, **lists}
    changed: list[ApiKey] = []
    ended: list[str] = []
    for one in map(key_of, (await connection.execute(_WIDER_BELOW, bound)).all()):
        narrowed = restrictions.cut(one, key)
        if narrowed is None:
            ended.append(one.id)
        else:
            changed.append(narrowed)
        # Others have their turn on the loop where there are many.
        await asyncio.sleep(0)
    if ended:
        await revoke_where(connection, key.organization_id, api_keys.c.id.in_(ended))
    if changed:
        setting: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in _NARROWED}
        which = api_keys.c.id == sa.bindparam("key")
        rows = [
            {"key": one.id, **{f"new_{name}": getattr(one, name) for name in _NARROWED}}
            for one in changed
        ]
        await connection.execute(api_keys.update().where(which).values(setting), rows)
        await _tell(connection, *(one.id for one in changed))
