"""Rows of the keys' table for workloads that were let in."""

from dataclasses import dataclass, replace

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.rpc.auth import Principal
from windlass.policy import permissions_of
from windlass.users.domain import SERVICE_ACCOUNT, ApiKey
from windlass.users.keys.policies import require_new
from windlass.users.keys.store import MAX_PEOPLE
from windlass.users.standing import worth
from windlass.users.tables import api_keys, members, organizations, projects
from windlass.users.workloads.domain import FederationRule, WorkloadIssuer
from windlass.users.workloads.judging import NotExchanged
from windlass.users.workloads.store import held_for_token

# Of a token that is given, where the one that was shown holds longer.
TOKEN_SECONDS = 900
# One that ends sooner is of no use.
SHORTEST_SECONDS = 5
# Of one rule, at once.
MAX_LIVE_TOKENS = 1000
# After their end. Lists still show them, and what an issuer signed may be shown for a day.
KEPT_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class ShownCredential:
    """Digests of what a workload will show, and what people see of it."""

    digest: bytes
    redacted: str
    # Of what the issuer signed, where it is the issuer's token itself.
    signed_digest: bytes | None = None


class TokenGiver:
    """Makes credentials of service accounts by rules that tokens fulfil."""

    def __init__(self, database: Database):
        self._database = database

    async def is_settled(self, digest: bytes) -> bool:
        """Returns True if a credential lives or was revoked, so that nothing is left to judge."""
        query = sa.select(api_keys.c.revoked_at, api_keys.c.expires_at).where(
            api_keys.c.digest == digest
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        return row is not None and (row.revoked_at > 0 or row.expires_at > now_seconds())

    async def give(
        self, provider: WorkloadIssuer, rule: FederationRule, end: int, shown: ShownCredential
    ) -> ApiKey:
        """A credential that ends no later than `end`; raises NotExchanged."""
        principal = Principal(
            rule.organization_id, rule.project_id, user_id=rule.service_account_id
        )
        key = _key(provider, rule, end, shown, principal)
        async with self._database.begin() as connection:
            if not await held_for_token(connection, provider, rule):
                raise NotExchanged("no_rule_fulfilled", principal)
            role = await _role(connection, rule)
            scopes = tuple(sorted(permissions_of((role,)).intersection(rule.scopes)))
            if not role or (rule.scopes and not scopes):
                raise NotExchanged("no_such_account", principal)
            key = replace(key, role=role, scopes=scopes)
            await _require_live(connection, key, rule, principal)
            if shown.signed_digest is not None:
                return await _put(connection, key, rule, shown, principal)
            await connection.execute(api_keys.insert().values(_values(key, rule, shown)))
        return key


def _key(
    provider: WorkloadIssuer,
    rule: FederationRule,
    end: int,
    shown: ShownCredential,
    principal: Principal,
) -> ApiKey:
    now = now_seconds()
    end = min(now + TOKEN_SECONDS, end)
    people = tuple(sorted({*provider.rests_on, *rule.rests_on}))
    if end < now + SHORTEST_SECONDS:
        raise NotExchanged("subject_token_refused", principal)
    if len(people) > MAX_PEOPLE:
        raise NotExchanged("rests_on_too_many", principal)
    return ApiKey(
        id=new_id("key_"),
        name=rule.name or provider.name,
        organization_id=rule.organization_id,
        project_id=rule.project_id,
        user_id=rule.service_account_id,
        role="",
        redacted=shown.redacted,
        created_at=now,
        expires_at=end,
        revoked_at=0,
        last_used_at=0,
        made_by=rule.changed_by,
        parent_key_id="",
        rests_on=people,
        kind="token",
    )


def _values(key: ApiKey, rule: FederationRule, shown: ShownCredential) -> dict[str, object]:
    values = {name: getattr(key, name) for name in ApiKey.__slots__}
    return values | {
        "digest": shown.digest,
        "signed_digest": shown.signed_digest,
        "federation_rule_id": rule.id,
    }


async def _put(
    connection: AsyncConnection,
    key: ApiKey,
    rule: FederationRule,
    shown: ShownCredential,
    principal: Principal,
) -> ApiKey:
    """Makes the one row of what an issuer signed, or gives it its next end.

    It stays revoked once it is. A second signature of the same is refused: some can be made from
    the first by anybody.
    """
    which = api_keys.c.signed_digest == shown.signed_digest
    row = (await connection.execute(api_keys.select().where(which).with_for_update())).first()
    if row is None:
        # Another gateway may have been first; the look-up that follows finds what it made.
        made = insert(api_keys).values(_values(key, rule, shown)).on_conflict_do_nothing()
        await connection.execute(made)
        return key
    if row.digest != shown.digest:
        raise NotExchanged("signed_otherwise", principal)
    key = replace(key, id=row.id, created_at=row.created_at, last_used_at=row.last_used_at)
    if not row.revoked_at:
        values = _values(key, rule, shown)
        await connection.execute(api_keys.update().where(api_keys.c.id == row.id).values(values))
    return key


async def _require_live(
    connection: AsyncConnection, key: ApiKey, rule: FederationRule, principal: Principal
) -> None:
    """Raises NotExchanged for a token that would be worth nothing, and for one too many."""
    if await worth(connection, key) is None:
        raise NotExchanged("rests_on_who_left", principal)
    try:
        await require_new(connection, key, by_operator=False)
    except (InvalidArgument, PermissionDenied) as error:
        raise NotExchanged("against_key_policy", principal) from error
    given = api_keys.c.federation_rule_id == rule.id
    live = sa.select(sa.literal(1)).where(given, api_keys.c.expires_at > key.created_at)
    count = sa.select(sa.func.count()).select_from(live.limit(MAX_LIVE_TOKENS).subquery())
    if (await connection.execute(count)).scalar_one() >= MAX_LIVE_TOKENS:
        raise NotExchanged("too_many_tokens", principal)


async def _role(connection: AsyncConnection, rule: FederationRule) -> str:
    """The role of the rule's account in a live project, which it keeps until the end of the
    transaction; empty where it has none.
    """
    member = members.select().where(
        members.c.organization_id == rule.organization_id,
        members.c.project_id == rule.project_id,
        members.c.user_id == rule.service_account_id,
        members.c.kind == SERVICE_ACCOUNT,
    )
    row = (await connection.execute(member.with_for_update(read=True))).first()
    is_live = sa.exists().where(
        organizations.c.id == projects.c.organization_id,
        organizations.c.deleted_at == 0,
        projects.c.id == rule.project_id,
        projects.c.organization_id == rule.organization_id,
        projects.c.archived_at == 0,
    )
    if row is None or not await connection.scalar(sa.select(is_live)):
        return ""
    return str(row.role)


async def forget_tokens(database: Database) -> None:
    """Removes tokens that ended a while ago."""
    old = api_keys.c.expires_at < now_seconds() - KEPT_SECONDS
    async with database.begin() as connection:
        await connection.execute(api_keys.delete().where(api_keys.c.federation_rule_id != "", old))
