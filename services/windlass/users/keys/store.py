"""Every query on API keys."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from windlass.policy import KEYS, PLATFORM, narrowed
from windlass.users.client_demands.demands import demanded, with_networks
from windlass.users.domain import SESSION, ApiKey
from windlass.users.keys.listing import KeyFilter
from windlass.users.keys.policies import require_new
from windlass.users.keys.restrictions import inherit, models_within
from windlass.users.keys.revocation import revoke_where
from windlass.users.session_strength.strength import judged, require_signed_in
from windlass.users.standing import Worth, home_project, worth, worth_of_session
from windlass.users.tables import api_keys, key_changes, model_policies, organizations, projects

# `last_used_at` is for people; a minute is fine and spares a write per call.
LAST_USED_SECONDS = 60
# Whose rights one look-up reads.
MAX_PEOPLE = 16
# How far back a beat looks, so that a change which commits late is still heard of.
CHANGES_SECONDS = 15
# At each beat, also while nothing happens: making the statement costs more than running it.
_RECENT_CHANGES = (
    "SELECT id, key_id, organization_id FROM users_key_changes"
    " WHERE at > now() - make_interval(0, 0, 0, 0, 0, 0, %s)"
)


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A live key, what it may be now, and the scope of the call that presents it."""

    key: ApiKey
    # When what was shown ends: the key, or a secret of before its rotation; 0: never.
    expires_at: int
    # None where it has only roles of the tenant's own; several of a session.
    roles: tuple[str, ...]
    # Before its scopes.
    permissions: frozenset[str]
    organization_id: str
    project_id: str
    is_weakened: bool = False
    # Of the key, within those of the project; empty: any.
    models: tuple[str, ...] = ()
    # In DER; a client satisfies each group by one of it.
    certificate_demands: tuple[tuple[bytes, ...], ...] = ()
    # Of its organization, beside the key's own; empty: any.
    organization_networks: tuple[str, ...] = ()
    # As of a principal.
    fresh_until: int | None = None


def key_of(row: Any) -> ApiKey:
    """The key of a row."""
    values = {name: getattr(row, name) for name in ApiKey.__slots__}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return ApiKey(**values | lists)


def require_live(key: ApiKey) -> None:
    """Raises Unauthenticated for a key that is revoked or has expired."""
    if key.revoked_at:
        raise Unauthenticated("This API key has been revoked.")
    if key.expires_at and key.expires_at <= now_seconds():
        raise Unauthenticated("This API key has expired.")


def unknown_key(key_id: str) -> NotFound:
    """The error of a key that is not there, or not for the caller."""
    return NotFound(f"No API key {key_id!r}.", param="key_id")


def below(parent: ApiKey, key: ApiKey) -> ApiKey:
    """The key as one that is made with its parent, which lives; raises InvalidArgument."""
    people = {*key.rests_on, parent.user_id, parent.made_by, *parent.rests_on} - {""}
    if len(people) > MAX_PEOPLE:
        raise InvalidArgument(
            f"This key would rest on more than {MAX_PEOPLE} members. Make it with a key that "
            "fewer have handed on.",
            param="user_id",
        )
    return replace(inherit(key, parent), rests_on=tuple(sorted(people)))


def _no_project(project_id: str) -> PermissionDenied:
    return PermissionDenied(
        f"No live project {project_id!r} in this organization.", reason="mismatched_project"
    )


async def _worth(
    connection: AsyncConnection, key: ApiKey, project_id: str, fresh_seconds: int
) -> tuple[Worth, int]:
    """The worth of a credential in the project that its call names, and its end; 0: the key's.

    Raises Unauthenticated, and PermissionDenied for a person who has no role in that project.
    """
    if key.kind == SESSION:
        found = await worth_of_session(connection, key, project_id)
        if found.permissions:
            return await judged(connection, key, found, fresh_seconds)
        if project_id:
            raise _no_project(project_id)
        raise Unauthenticated("You have no role in this organization. Ask an owner for one.")
    of_key = await worth(connection, key)
    if of_key is None:
        raise Unauthenticated(
            "The owner of this API key, or a member who made it, may not do what it is for any "
            "more. Ask an owner for a new one."
        )
    return of_key, 0


async def kept_alive(connection: AsyncConnection, key_id: str) -> ApiKey:
    """A live credential that nobody ends until the end of the transaction; raises Unauthenticated.

    So a revocation sees either what was made with the key meanwhile, or comes before. What a
    person makes while signed in outlasts the session.
    """
    query = api_keys.select().where(api_keys.c.id == key_id).with_for_update(read=True)
    row = (await connection.execute(query)).first()
    if row is None:
        raise Unauthenticated("The API key of this call was deleted. Use another.")
    key = key_of(row)
    require_live(key)
    return replace(key, expires_at=0) if key.kind == SESSION else key


def made_with(parent: ApiKey, key: ApiKey) -> ApiKey:
    """The key below its parent, with which it ends; below nothing where that is a session."""
    name = "" if parent.kind == SESSION else parent.id
    return replace(below(parent, key), parent_key_id=name)


async def _shown(
    connection: AsyncConnection, digest: bytes, key_id: str
) -> tuple[ApiKey, int, frozenset[str]]:
    """The live key of a digest or an id, when that is no longer good, and what it may not do.

    The secret of before a rotation answers until the overlap is over, and makes and changes no
    keys meanwhile: it could give itself another life. Raises Unauthenticated.
    """
    which = (
        api_keys.c.id == key_id
        if key_id
        else sa.or_(api_keys.c.digest == digest, api_keys.c.previous_digest == digest)
    )
    row = (await connection.execute(api_keys.select().where(which))).first()
    if row is None:
        raise Unauthenticated("Incorrect API key provided.")
    key = key_of(row)
    require_live(key)
    if key_id or row.digest == digest:
        return key, key.expires_at, frozenset()
    if key.previous_until <= now_seconds():
        raise Unauthenticated("This API key has been rotated, and its old secret has ended.")
    return key, min(e for e in (key.expires_at, key.previous_until) if e), frozenset({KEYS})


class KeyStore:
    """API keys."""

    def __init__(self, database: Database, *, fresh_seconds: int = 0):
        """`fresh_seconds` after a sign-in a session takes dangerous steps; 0: always."""
        self._database = database
        self._fresh_seconds = fresh_seconds

    async def create(self, key: ApiKey, digest: bytes, *, by_operator: bool = False) -> ApiKey:
        """Stores a key by its digest; it ends no later than the key that it is made with.

        Raises Unauthenticated when that one has ended meanwhile, InvalidArgument where the key
        would rest on too many members, and what the organization's policy refuses.
        """
        key = replace(key, rests_on=(key.made_by,) if key.made_by else ())
        async with self._database.begin() as connection:
            if key.parent_key_id:
                parent = await kept_alive(connection, key.parent_key_id)
                key = made_with(parent, key)
                if not by_operator:
                    await require_signed_in(connection, key, parent)
            if key.made_by:
                # Others come from the server's machine, and are how one gets in again.
                await require_new(connection, key, by_operator=by_operator)
            values = {name: getattr(key, name) for name in ApiKey.__slots__}
            await connection.execute(api_keys.insert().values(values | {"digest": digest}))
        return key

    async def list(
        self,
        organization_id: str,
        which: KeyFilter,
        *,
        oldest_first: bool = False,
        after: str,
        limit: int,
    ) -> Sequence[ApiKey]:
        """Keys of the organization, by their creation."""
        query = by_creation(
            which.of(organization_id),
            api_keys.c.created_at,
            api_keys.c.id,
            after=after,
            of=api_keys.c.organization_id == organization_id,
            oldest_first=oldest_first,
        )
        async with self._database.autocommit() as connection:
            return [key_of(row) for row in await connection.execute(query.limit(limit))]

    async def newest(self, ids: Sequence[str], *, limit: int) -> Sequence[ApiKey]:
        """The newest of some keys, of any organization."""
        query = api_keys.select().where(api_keys.c.id.in_(ids))
        query = query.order_by(api_keys.c.created_at.desc(), api_keys.c.id.desc())
        async with self._database.autocommit() as connection:
            return [key_of(row) for row in await connection.execute(query.limit(limit))]

    async def get(self, organization_id: str, key_id: str) -> ApiKey:
        """Returns one key of the organization; raises NotFound."""
        query = api_keys.select().where(
            api_keys.c.organization_id == organization_id, api_keys.c.id == key_id
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_key(key_id)
        return key_of(row)

    async def by_id(self, key_id: str) -> ApiKey:
        """Returns one key of any organization; raises NotFound."""
        async with self._database.autocommit() as connection:
            row = (
                await connection.execute(api_keys.select().where(api_keys.c.id == key_id))
            ).first()
        if row is None:
            raise unknown_key(key_id)
        return key_of(row)

    async def revoke(self, organization_id: str, key_id: str) -> ApiKey:
        """Ends a key and what was made with it; idempotent; raises NotFound."""
        where = sa.and_(api_keys.c.organization_id == organization_id, api_keys.c.id == key_id)
        async with self._database.begin() as connection:
            await revoke_where(connection, organization_id, where)
        return await self.get(organization_id, key_id)

    async def lookup(
        self, digest: bytes, *, organization_id: str, project_id: str, key_id: str = ""
    ) -> FoundKey:
        """The live key of a digest (or of an id) and the scope that the call asks for.

        What the key may do is within its own role and the present ones of everybody on whom
        it rests. Raises Unauthenticated for a key that is unknown, revoked, expired or worth
        nothing, and PermissionDenied for a scope that is not the key's.
        """
        async with self._database.autocommit() as connection:
            key, expires_at, denied = await _shown(connection, digest, key_id)
            away = organization_id not in ("", key.organization_id)
            asked = "" if away else project_id
            if key.kind == SESSION and not asked:
                asked = await home_project(connection, key)
            found, weaker_at = await _worth(connection, key, asked, self._fresh_seconds)
            expires_at = min(filter(None, (expires_at, weaker_at)), default=0)
            permissions = found.permissions - denied
            organization = self._organization(key, permissions, organization_id)
            # The list is the credential's own organization's, wherever it acts.
            live = with_networks(key.organization_id).where(
                organizations.c.id == organization, organizations.c.deleted_at == 0
            )
            if (there := (await connection.execute(live)).first()) is None:
                raise Unauthenticated(
                    "The organization of this API key was deleted. Use a key of another one."
                )
            wanted = key.project_id or project_id or ("" if away else asked)
            if key.project_id and project_id not in ("", key.project_id):
                raise PermissionDenied(
                    "This API key belongs to another project.", reason="mismatched_project"
                )
            which = projects.c.id == wanted if wanted else projects.c.is_default
            project = (
                await connection.execute(
                    sa.select(projects.c.id, model_policies.c.mode, model_policies.c.model_ids)
                    .join(model_policies, model_policies.c.id == projects.c.id, isouter=True)
                    .where(
                        which,
                        projects.c.organization_id == organization,
                        projects.c.archived_at == 0,
                    )
                )
            ).first()
            if project is None and wanted:
                raise _no_project(wanted)
            demands = await demanded(connection, key.organization_id, project.id if project else "")
            if key.last_used_at < now_seconds() - LAST_USED_SECONDS:
                await connection.execute(
                    api_keys.update()
                    .where(api_keys.c.id == key.id)
                    .values(last_used_at=now_seconds())
                )
        return FoundKey(
            key,
            expires_at,
            found.roles,
            permissions,
            organization,
            project.id if project else "",
            found.is_weakened,
            models_within(key, project.mode, project.model_ids) if project else key.models,
            demands,
            tuple(there.networks or ()),
            found.fresh_until,
        )

    @staticmethod
    def _organization(key: ApiKey, permissions: frozenset[str], asked: str) -> str:
        if not asked or asked == key.organization_id:
            return key.organization_id
        if PLATFORM not in narrowed(permissions, key.scopes):
            raise PermissionDenied(
                "This API key belongs to another organization.", reason="mismatched_organization"
            )
        return asked

    async def recent_changes(self) -> Sequence[tuple[int, str, str]]:
        """Changes of the last seconds, as (change id, key id, organization id); one id is empty."""
        async with self._database.autocommit() as connection:
            rows = await connection.exec_driver_sql(_RECENT_CHANGES, (CHANGES_SECONDS,))
            return [(row.id, row.key_id, row.organization_id) for row in rows]

    async def forget_changes(self) -> None:
        """Drops changes that every holder has heard of."""
        old = sa.func.now() - sa.func.make_interval(0, 0, 0, 1)
        async with self._database.begin() as connection:
            await connection.execute(key_changes.delete().where(key_changes.c.at < old))
