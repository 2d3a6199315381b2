"""Every query on identity providers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_PROVIDERS
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import AlreadyExists, FailedPrecondition, InvalidArgument
from windlass.core.keyring import Envelope
from windlass.users.domain import managed_by_directory
from windlass.users.groups.store import is_managed
from windlass.users.identity.tables import identities, identity_providers
from windlass.users.keys.revocation import take_turn
from windlass.users.session_strength.tables import sessions, sign_in_policies
from windlass.users.sign_in.domain import IdentityProvider, unknown_provider
from windlass.users.sign_in.sessions import end_sessions
from windlass.users.tables import groups

_PLAIN = tuple(IdentityProvider.__slots__)


class ProviderStore:
    """Identity providers of organizations and of the installation."""

    def __init__(self, database: Database, envelope: Envelope):
        self._database = database
        self._envelope = envelope

    async def create(self, provider: IdentityProvider, secret: str) -> None:
        """Stores a provider; raises AlreadyExists, and InvalidArgument where there are too many
        or a group is not the organization's.
        """
        own = identity_providers.c.organization_id == provider.organization_id
        row = _row(provider) | {"client_secret": self._sealed(provider.id, secret)}
        try:
            async with self._database.begin() as connection:
                await take_turn(connection, provider.organization_id, of="identity providers")
                count = sa.select(sa.func.count()).select_from(identity_providers).where(own)
                if (await connection.execute(count)).scalar_one() >= MAX_PROVIDERS:
                    message = f"There may be {MAX_PROVIDERS} identity providers."
                    raise InvalidArgument(message, param="name")
                await _require_groups(connection, provider, set(provider.groups.values()))
                await connection.execute(identity_providers.insert().values(row))
        except IntegrityError as error:
            raise _taken(provider.name) from error

    async def seen(self, organization_id: str, provider_id: str) -> IdentityProvider:
        """Returns a provider of the organization or of the installation; raises NotFound."""
        which = identity_providers.c.organization_id.in_({"", organization_id})
        return await self._one(identity_providers.c.id == provider_id, which, named=provider_id)

    async def own(self, organization_id: str, provider_id: str) -> IdentityProvider:
        """Returns a provider of exactly this organization; raises NotFound."""
        which = identity_providers.c.organization_id == organization_id
        return await self._one(identity_providers.c.id == provider_id, which, named=provider_id)

    async def any(self, provider_id: str) -> IdentityProvider:
        """A provider that is enabled, of whatever organization; raises NotFound."""
        which = identity_providers.c.enabled
        return await self._one(identity_providers.c.id == provider_id, which, named=provider_id)

    async def list(
        self, organization_id: str, *, after: str, limit: int
    ) -> Sequence[IdentityProvider]:
        """The organization's providers and the installation's, newest first."""
        which = identity_providers.c.organization_id.in_({"", organization_id})
        query = by_creation(
            identity_providers.select().where(which),
            identity_providers.c.created_at,
            identity_providers.c.id,
            after=after,
            of=which,
            oldest_first=False,
        )
        async with self._database.autocommit() as connection:
            return [_provider(row) for row in await connection.execute(query.limit(limit))]

    async def ways_in(self, organization_id: str) -> Sequence[IdentityProvider]:
        """Returns enabled ones of an organization and of the installation, by their names."""
        table = identity_providers.c
        query = identity_providers.select().where(
            table.enabled, table.organization_id.in_({"", organization_id})
        )
        query = query.order_by(table.organization_id.desc(), table.name)
        async with self._database.autocommit() as connection:
            return [_provider(row) for row in await connection.execute(query)]

    async def update(
        self,
        organization_id: str,
        provider_id: str,
        change: Callable[[IdentityProvider], IdentityProvider],
        *,
        secret: str | None,
    ) -> IdentityProvider:
        """Changes a provider, which `change` is given as it stands; ends the sessions by one that
        is disabled. Raises NotFound, AlreadyExists, InvalidArgument.
        """
        which = sa.and_(
            identity_providers.c.id == provider_id,
            identity_providers.c.organization_id == organization_id,
        )
        try:
            async with self._database.begin() as connection:
                query = identity_providers.select().where(which).with_for_update()
                row = (await connection.execute(query)).first()
                if row is None:
                    raise unknown_provider(provider_id)
                before = _provider(row)
                changed = change(before)
                # One that went to the directory since then keeps nobody from other changes.
                new = set(changed.groups.values()).difference(before.groups.values())
                await _require_groups(connection, changed, new)
                values = _row(changed) | {"updated_at": now_seconds()}
                if secret is not None:
                    values["client_secret"] = self._sealed(provider_id, secret)
                await connection.execute(identity_providers.update().where(which).values(values))
                if not changed.enabled:
                    await _require_another(connection, organization_id)
                    await end_sessions(connection, sessions.c.provider_id == provider_id)
        except IntegrityError as error:
            raise _taken(changed.name) from error
        return await self.own(organization_id, provider_id)

    async def delete(self, organization_id: str, provider_id: str) -> None:
        """Removes a provider with its sessions and whom it vouched for; raises NotFound.

        Who was removed stays known: another provider of the same issuer takes them in by no role.
        """
        which = sa.and_(
            identity_providers.c.id == provider_id,
            identity_providers.c.organization_id == organization_id,
        )
        async with self._database.begin() as connection:
            if not (await connection.execute(identity_providers.delete().where(which))).rowcount:
                raise unknown_provider(provider_id)
            await _require_another(connection, organization_id)
            mine = identities.c.provider_id == provider_id
            current = sa.and_(mine, identities.c.user_id != "")
            await connection.execute(identities.delete().where(current))
            await end_sessions(connection, sessions.c.provider_id == provider_id)

    async def secret_of(self, provider: IdentityProvider) -> str:
        """The secret of our client there; empty for a public one."""
        query = sa.select(identity_providers.c.client_secret).where(
            identity_providers.c.id == provider.id
        )
        async with self._database.autocommit() as connection:
            sealed = (await connection.execute(query)).scalar_one_or_none()
        return self._envelope.open(sealed, context=provider.id).decode() if sealed else ""

    def _sealed(self, provider_id: str, secret: str) -> bytes:
        return self._envelope.seal(secret.encode(), context=provider_id) if secret else b""

    async def _one(self, *where: sa.ColumnElement[bool], named: str) -> IdentityProvider:
        async with self._database.autocommit() as connection:
            row = (await connection.execute(identity_providers.select().where(*where))).first()
        if row is None:
            raise unknown_provider(named)
        return _provider(row)


async def _require_another(connection: AsyncConnection, organization_id: str) -> None:
    """Raises FailedPrecondition where an organization needs an issuer of its own and has none."""
    table = identity_providers.c
    left = sa.exists().where(table.organization_id == organization_id, table.enabled)
    required = sa.exists().where(
        sign_in_policies.c.id == organization_id, sign_in_policies.c.required
    )
    if await connection.scalar(sa.select(sa.and_(required, ~left))):
        raise FailedPrecondition(
            "People of this organization can sign in by no other issuer, and it asks them to. "
            "Change its policy first.",
            reason="sign_in_required",
            param="provider_id",
        )


async def _require_groups(
    connection: AsyncConnection, provider: IdentityProvider, named: set[str]
) -> None:
    """Raises InvalidArgument for a group that is not one of the provider's organization, and
    FailedPrecondition for one of its directory.
    """
    query = sa.select(groups.c.id, groups.c.name, is_managed().label("managed")).where(
        groups.c.organization_id == provider.organization_id, groups.c.id.in_(named)
    )
    found = {row.id: row for row in await connection.execute(query)}
    if missing := sorted(named - set(found)):
        raise InvalidArgument(f"No group {missing[0]!r}.", param="groups")
    for row in found.values():
        if row.managed:
            raise managed_by_directory(f"the group {row.name}")


def _row(provider: IdentityProvider) -> dict[str, Any]:
    return {name: getattr(provider, name) for name in _PLAIN}


def _provider(row: Any) -> IdentityProvider:
    values: Mapping[str, Any] = {name: getattr(row, name) for name in _PLAIN}
    lists = {name: tuple(values[name]) for name in ("scopes", "domains")}
    return IdentityProvider(**{**values, **lists})


def _taken(name: str) -> AlreadyExists:
    message = f"The identity provider {name!r} exists already. Choose another name."
    return AlreadyExists(message, param="name")
