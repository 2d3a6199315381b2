"""Policies of organizations for keys: how long they live, whose they are, that they are used.

A policy is read in the transaction that makes or changes a key, which ends before another policy
is set. Keys that are made on the server's machine ask no policy: they are how one comes back.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_KEY_SECONDS, MAX_UNUSED_DAYS, MIN_LONGEST_LIFE
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import released
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.rpc import audited
from windlass.users.domain import SERVICE_ACCOUNT, ApiKey
from windlass.users.tables import key_policies, members


@dataclass(frozen=True, slots=True)
class KeyPolicy:
    """An organization's policy; that of one which has set none asks for nothing."""

    # Seconds; 0: any.
    longest_life: int = 0
    service_accounts_only: bool = False
    # 0: none ends.
    unused_days: int = 0
    updated_at: int = 0


def valid_policy(longest_life: int, unused_days: int, *, service_accounts_only: bool) -> KeyPolicy:
    """A policy of now; raises InvalidArgument."""
    if longest_life and not MIN_LONGEST_LIFE <= longest_life <= MAX_KEY_SECONDS:
        raise InvalidArgument(
            f"longest_life must be between {MIN_LONGEST_LIFE} and {MAX_KEY_SECONDS} seconds, or 0 "
            "for keys that need not end.",
            param="longest_life",
        )
    if not 0 <= unused_days <= MAX_UNUSED_DAYS:
        raise InvalidArgument(
            f"unused_days must be between 1 and {MAX_UNUSED_DAYS}, or 0 for keys that need not be "
            "used.",
            param="unused_days",
        )
    return KeyPolicy(longest_life, service_accounts_only, unused_days, now_seconds())


class KeyPolicies:
    """Policies by organization."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, organization_id: str) -> KeyPolicy:
        """The organization's."""
        async with self._database.autocommit() as connection:
            return _policy(await connection.execute(_of(organization_id)))

    async def put(self, organization_id: str, policy: KeyPolicy) -> None:
        """Sets the organization's; its unused keys are looked for anew."""
        values = {name: getattr(policy, name) for name in KeyPolicy.__slots__}
        values |= {"looked_at": 0, **released()}
        statement = insert(key_policies).values(id=organization_id, **values)
        async with self._database.begin() as connection:
            before = _policy(await connection.execute(_of(organization_id).with_for_update()))
            audited.change(before, policy, resource=organization_id)
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["id"], set_=values)
            )


async def require_new(connection: AsyncConnection, key: ApiKey, *, by_operator: bool) -> None:
    """Raises where a new key is not as its organization's policy asks.

    Raises InvalidArgument for its end, and PermissionDenied for its owner. An operator of the
    platform makes keys for people: an organization whose owners have lost theirs needs one.
    """
    policy = await _held(connection, key)
    _require_end(policy, key, "expires_in")
    if not policy.service_accounts_only or by_operator:
        return
    held = sa.select(members.c.kind).where(
        members.c.organization_id == key.organization_id,
        members.c.project_id.in_({"", key.project_id}),
        members.c.user_id == key.user_id,
    )
    if set((await connection.execute(held)).scalars()) != {SERVICE_ACCOUNT}:
        raise PermissionDenied(
            "In this organization only service accounts get keys. Make one with "
            "`windlass members put NAME --service-account`, and the key for it.",
            reason="service_accounts_only",
            param="user_id",
        )


async def require_end(connection: AsyncConnection, key: ApiKey, param: str) -> None:
    """Raises InvalidArgument for a key that ends later than its organization's policy asks."""
    _require_end(await _held(connection, key), key, param)


def _require_end(policy: KeyPolicy, key: ApiKey, param: str) -> None:
    longest = policy.longest_life
    if longest and not 0 < key.expires_at <= now_seconds() + longest:
        raise InvalidArgument(
            f"Keys of this organization must end within {longest} seconds: set expires_in to at "
            "most that.",
            reason="key_lives_too_long",
            param=param,
        )


async def _held(connection: AsyncConnection, key: ApiKey) -> KeyPolicy:
    query = _of(key.organization_id).with_for_update(read=True)
    return _policy(await connection.execute(query))


def _of(organization_id: str) -> sa.Select[Any]:
    columns = (key_policies.c[name] for name in KeyPolicy.__slots__)
    return sa.select(*columns).where(key_policies.c.id == organization_id)


def _policy(found: sa.CursorResult[Any]) -> KeyPolicy:
    row = found.first()
    return KeyPolicy(*row) if row is not None else KeyPolicy()
