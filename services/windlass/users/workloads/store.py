"""Every query on identity providers and federation rules.

Whoever changes one of them has taken the turn of the organization's keys before, since the tokens
that were given by it end in the same transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bearer_tokens import FINGERPRINT_BYTES
from windlass.bounds import MAX_FEDERATION_RULES, MAX_IDENTITY_PROVIDERS
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import InvalidArgument
from windlass.users.keys.revocation import revoke_where, share_turn, take_turn
from windlass.users.tables import api_keys, federation_rules, workload_providers
from windlass.users.workloads.domain import (
    FederationRule,
    WorkloadIssuer,
    unknown_provider,
    unknown_rule,
)

_RULES = federation_rules.c
_PROVIDERS = workload_providers.c
_ACCEPTS = sa.and_(_RULES.accepts_bearer, _RULES.enabled)
# Turns of those who change a rule or a provider.
_CHANGES = "federation rules"
# In one message.
MAX_FINGERPRINTS = 100_000


class WorkloadProviderStore:
    """Identity providers of organizations."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, provider: WorkloadIssuer) -> WorkloadIssuer:
        """Stores a provider; raises InvalidArgument where there are too many."""
        own = _PROVIDERS.organization_id == provider.organization_id
        async with self._database.begin() as connection:
            await take_turn(connection, provider.organization_id, of="identity providers")
            await _require_room(connection, workload_providers, own, MAX_IDENTITY_PROVIDERS)
            await connection.execute(workload_providers.insert().values(asdict(provider)))
        return provider

    async def find(self, provider_id: str) -> WorkloadIssuer | None:
        """The provider of an id, of any organization."""
        query = workload_providers.select().where(_PROVIDERS.id == provider_id)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        return provider_of(row) if row else None

    async def get(self, organization_id: str, provider_id: str) -> WorkloadIssuer:
        """Returns one provider of an organization; raises NotFound."""
        found = await self.find(provider_id)
        if found is None or found.organization_id != organization_id:
            raise unknown_provider(provider_id)
        return found

    async def list(
        self, organization_id: str, *, oldest_first: bool, after: str, limit: int
    ) -> Sequence[WorkloadIssuer]:
        """Providers of an organization, by their creation."""
        own = _PROVIDERS.organization_id == organization_id
        query = by_creation(
            workload_providers.select().where(own),
            _PROVIDERS.created_at,
            _PROVIDERS.id,
            after=after,
            of=own,
            oldest_first=oldest_first,
        )
        async with self._database.autocommit() as connection:
            return [provider_of(row) for row in await connection.execute(query.limit(limit))]

    async def update(
        self,
        organization_id: str,
        provider_id: str,
        change: Callable[[WorkloadIssuer], WorkloadIssuer],
    ) -> tuple[WorkloadIssuer, Sequence[str]]:
        """Changes a provider; returns it with the ids of the tokens that end.

        `change` is given the provider as it stands, and may raise. Raises NotFound.
        """
        async with self._database.begin() as connection:
            await _take_turns(connection, organization_id)
            changed = change(await _provider(connection, organization_id, provider_id))
            statement = workload_providers.update().where(_PROVIDERS.id == provider_id)
            await connection.execute(statement.values(asdict(changed)))
            return changed, await _end_tokens(connection, organization_id, provider_id)

    async def delete(self, organization_id: str, provider_id: str) -> Sequence[str]:
        """Removes a provider and its rules; returns the ids of the tokens that end.

        Raises NotFound.
        """
        async with self._database.begin() as connection:
            await _take_turns(connection, organization_id)
            await _provider(connection, organization_id, provider_id)
            ended = await _end_tokens(connection, organization_id, provider_id)
            await connection.execute(
                federation_rules.delete().where(_RULES.provider_id == provider_id)
            )
            await connection.execute(
                workload_providers.delete().where(_PROVIDERS.id == provider_id)
            )
        return ended


class FederationRuleStore:
    """Federation rules of providers."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, rule: FederationRule, *, of_cluster: bool) -> FederationRule:
        """Stores a rule; raises InvalidArgument where there are too many, and NotFound where its
        provider has gone. Of a cluster, nobody keeps a row.
        """
        own = sa.and_(
            _RULES.organization_id == rule.organization_id, _RULES.provider_id == rule.provider_id
        )
        async with self._database.begin() as connection:
            await take_turn(connection, rule.organization_id)
            if not of_cluster:
                await _provider(connection, rule.organization_id, rule.provider_id)
            await _require_room(connection, federation_rules, own, MAX_FEDERATION_RULES)
            await connection.execute(federation_rules.insert().values(asdict(rule)))
        return rule

    async def get(self, organization_id: str, provider_id: str, rule_id: str) -> FederationRule:
        """Returns one rule of a provider; raises NotFound."""
        async with self._database.autocommit() as connection:
            return await _rule(connection, organization_id, provider_id, rule_id)

    async def accepting(self, rule_id: str) -> FederationRule | None:
        """The enabled rule of an id that accepts tokens as they are, of any organization."""
        query = federation_rules.select().where(_RULES.id == rule_id, _ACCEPTS)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        return rule_of(row) if row else None

    async def fingerprints(self) -> tuple[bytes, bool]:
        """The fingerprints of all rules that accept tokens as they are, and whether there are
        more.
        """
        named = sa.func.concat(_RULES.id, "\n", _PROVIDERS.issuer)
        digest = sa.func.sha256(sa.func.convert_to(named, "UTF8"))
        rules = federation_rules.outerjoin(workload_providers, _PROVIDERS.id == _RULES.provider_id)
        some = (
            sa.select(sa.func.substr(digest, 1, FINGERPRINT_BYTES).label("print"))
            .select_from(rules)
            .where(_ACCEPTS)
            .limit(MAX_FINGERPRINTS + 1)
            .subquery()
        )
        joined = sa.func.string_agg(some.c.print, sa.cast(b"", sa.LargeBinary))
        async with self._database.autocommit() as connection:
            found = bytes(await connection.scalar(sa.select(joined)) or b"")
        most = MAX_FINGERPRINTS * FINGERPRINT_BYTES
        return found[:most], len(found) > most

    async def of_account(
        self, provider: WorkloadIssuer, account_id: str
    ) -> Sequence[FederationRule]:
        """The enabled rules of a provider for a service account; a cluster's are of many
        organizations.
        """
        query = federation_rules.select().where(
            _RULES.provider_id == provider.id,
            _RULES.service_account_id == account_id,
            _RULES.enabled,
        )
        if provider.organization_id:
            query = query.where(_RULES.organization_id == provider.organization_id)
        async with self._database.autocommit() as connection:
            return [rule_of(row) for row in await connection.execute(query)]

    async def list(
        self,
        organization_id: str,
        provider_id: str,
        *,
        project_id: str,
        account_id: str,
        oldest_first: bool,
        after: str,
        limit: int,
    ) -> Sequence[FederationRule]:
        """Rules of a provider, by their creation; where given, of a project or an account."""
        own = sa.and_(_RULES.organization_id == organization_id, _RULES.provider_id == provider_id)
        query = federation_rules.select().where(own)
        if project_id:
            query = query.where(_RULES.project_id == project_id)
        if account_id:
            query = query.where(_RULES.service_account_id == account_id)
        query = by_creation(
            query, _RULES.created_at, _RULES.id, after=after, of=own, oldest_first=oldest_first
        )
        async with self._database.autocommit() as connection:
            return [rule_of(row) for row in await connection.execute(query.limit(limit))]

    async def replace(self, before: FederationRule, after: FederationRule) -> Sequence[str]:
        """Puts a rule into the place of one; returns the ids of the tokens that end.

        Raises NotFound where that one has changed meanwhile, or gone.
        """
        async with self._database.begin() as connection:
            await self._hold(connection, before)
            statement = federation_rules.update().where(_RULES.id == before.id)
            await connection.execute(statement.values(asdict(after)))
            return await _end_rule(connection, before)

    async def delete(self, rule: FederationRule) -> Sequence[str]:
        """Removes a rule; returns the ids of the tokens that end; raises as `replace`."""
        async with self._database.begin() as connection:
            await self._hold(connection, rule)
            await connection.execute(federation_rules.delete().where(_RULES.id == rule.id))
            return await _end_rule(connection, rule)

    async def _hold(self, connection: AsyncConnection, rule: FederationRule) -> None:
        await _take_turns(connection, rule.organization_id)
        held = await _rule(connection, rule.organization_id, rule.provider_id, rule.id, lock=True)
        if held != rule:
            raise unknown_rule(rule.id)


async def held_for_token(
    connection: AsyncConnection, provider: WorkloadIssuer, rule: FederationRule
) -> bool:
    """Returns True if both are as they were, and stay so until the end of the transaction.

    Whoever changes them comes first: rows alone would be held by one token after the other.
    """
    await share_turn(connection, rule.organization_id, of=_CHANGES)
    rules = federation_rules.select().where(_RULES.id == rule.id)
    row = (await connection.execute(rules.with_for_update(read=True))).first()
    if row is None or rule_of(row) != rule:
        return False
    if not provider.organization_id:
        # A cluster, of which its agent says what it is.
        return True
    providers = workload_providers.select().where(_PROVIDERS.id == provider.id)
    row = (await connection.execute(providers.with_for_update(read=True))).first()
    return row is not None and provider_of(row) == provider


async def _take_turns(connection: AsyncConnection, organization_id: str) -> None:
    await take_turn(connection, organization_id, of=_CHANGES)
    await take_turn(connection, organization_id)


async def _provider(
    connection: AsyncConnection, organization_id: str, provider_id: str
) -> WorkloadIssuer:
    query = workload_providers.select().where(
        _PROVIDERS.id == provider_id, _PROVIDERS.organization_id == organization_id
    )
    row = (await connection.execute(query.with_for_update())).first()
    if row is None:
        raise unknown_provider(provider_id)
    return provider_of(row)


async def _rule(
    connection: AsyncConnection,
    organization_id: str,
    provider_id: str,
    rule_id: str,
    *,
    lock: bool = False,
) -> FederationRule:
    query = federation_rules.select().where(
        _RULES.id == rule_id,
        _RULES.provider_id == provider_id,
        _RULES.organization_id == organization_id,
    )
    row = (await connection.execute(query.with_for_update() if lock else query)).first()
    if row is None:
        raise unknown_rule(rule_id)
    return rule_of(row)


async def _require_room(
    connection: AsyncConnection, table: sa.Table, own: sa.ColumnElement[bool], most: int
) -> None:
    count = sa.select(sa.func.count()).select_from(table).where(own)
    if (await connection.execute(count)).scalar_one() >= most:
        raise InvalidArgument(f"There may be {most} of these.", param="name")


async def _end_tokens(
    connection: AsyncConnection, organization_id: str, provider_id: str
) -> list[str]:
    rules = sa.select(_RULES.id).where(_RULES.provider_id == provider_id)
    return await _end(connection, organization_id, api_keys.c.federation_rule_id.in_(rules))


async def _end_rule(connection: AsyncConnection, rule: FederationRule) -> list[str]:
    return await _end(connection, rule.organization_id, api_keys.c.federation_rule_id == rule.id)


async def _end(
    connection: AsyncConnection, organization_id: str, given: sa.ColumnElement[bool]
) -> list[str]:
    """Ends tokens with what gave them; returns their ids.

    Issuers' own among them may be shown again, and are judged anew: it is not they that somebody
    revoked. So their rows have a digest that nothing has any more.
    """
    ended = await revoke_where(connection, organization_id, given)
    of_id = sa.func.convert_to(api_keys.c.id, "UTF8")
    spent = sa.func.sha256(api_keys.c.digest.op("||")(of_id))
    statement = (
        api_keys.update()
        .where(given, api_keys.c.id.in_(ended), api_keys.c.signed_digest.is_not(None))
        .values(digest=spent, signed_digest=None)
    )
    await connection.execute(statement)
    return ended


def provider_of(row: Any) -> WorkloadIssuer:
    """The provider of a row."""
    values = {name: getattr(row, name) for name in WorkloadIssuer.__slots__}
    pairs = tuple((name, text) for name, text in values["transformations"])
    return replace(
        WorkloadIssuer(**values), transformations=pairs, rests_on=tuple(values["rests_on"])
    )


def rule_of(row: Any) -> FederationRule:
    """The rule of a row."""
    values = {name: getattr(row, name) for name in FederationRule.__slots__}
    lists = {name: tuple(values[name]) for name in ("scopes", "rests_on")}
    return FederationRule(**values | lists)
