"""Every query on fetches: models on their way from a hub."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.errors import FailedPrecondition, NotFound, ResourceExhausted
from windlass.core.quotas import Quota, Quotas
from windlass.core.rpc.auth import Principal
from windlass.models.domain import Version, version_prefix
from windlass.models.manifest import Manifest
from windlass.models.revisions import next_revision
from windlass.models.store import point, values_of
from windlass.models.tables import fetches, versions

MAX_OPEN = 20
LEASE_SECONDS = 60.0
DAY_SECONDS = 86_400


class FetchState(StrEnum):
    """Queued and running, back and forth as hubs come and go, until one of the ends."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN = (FetchState.QUEUED, FetchState.RUNNING)
_IS_OPEN = fetches.c.state.in_(OPEN)
_IS_LEFT = sa.and_(
    fetches.c.state.in_([FetchState.FAILED, FetchState.CANCELLED]), fetches.c.version_id != ""
)
_NEEDS_WORK = sa.or_(_IS_OPEN, _IS_LEFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """A repository that becomes a model; `manifest` has the files that are stored already."""

    id: str
    organization_id: str
    project_id: str
    name: str
    is_global: bool
    repository: str
    revision: str
    version_id: str
    created_at: int
    commit: str = ""
    state: FetchState = FetchState.QUEUED
    manifest: Manifest = field(default_factory=lambda: Manifest(()))
    bytes_done: int = 0
    bytes_total: int = 0
    # Of all tries, those included that stored nothing.
    bytes_fetched: int = 0
    failures: int = 0
    error_code: str = ""
    # While it is open: why its last try failed.
    error_message: str = ""
    finished_at: int = 0
    # The prefix of its files in the object store.
    object_prefix: str = ""


def _values(fetch: Fetch) -> dict[str, Any]:
    values = {name: getattr(fetch, name) for name in Fetch.__slots__}
    return values | {"manifest": fetch.manifest.to_json()}


def _to_fetch(row: Any) -> Fetch:
    values = {name: getattr(row, name) for name in Fetch.__slots__}
    state, manifest = FetchState(row.state), Manifest.from_json(row.manifest)
    prefix = row.object_prefix or version_prefix(row.version_id)
    return Fetch(**values | {"state": state, "manifest": manifest, "object_prefix": prefix})


def _of(principal: Principal) -> sa.ColumnElement[bool]:
    return sa.and_(
        fetches.c.organization_id == principal.organization_id,
        fetches.c.project_id == principal.project_id,
    )


def _seen_by(principal: Principal) -> sa.ColumnElement[bool]:
    """The fetches of the project, of models that the caller may use."""
    if principal.models is None:
        return _of(principal)
    return sa.and_(_of(principal), principal.models.condition(fetches.c.name))


class FetchStore:
    """Fetches, from the wish to the version."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        self._needs_nothing = no_rows(database, _NEEDS_WORK)

    async def create(self, principal: Principal, fetch: Fetch) -> Fetch:
        """Stores it, or answers the open one of the same.

        Raises ResourceExhausted, PermissionDenied `quota_exceeded`.
        """
        query = fetches.select().where(_of(principal), _IS_OPEN)
        async with self._database.begin() as connection:
            # Two at once of one project would not see each other.
            key = sa.func.hashtextextended(f"fetch {fetch.organization_id} {fetch.project_id}", 0)
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
            open_ = [_to_fetch(row) for row in await connection.execute(query)]
            for one in open_:
                if _wish(one) == _wish(fetch):
                    return one
            if len(open_) >= MAX_OPEN:
                raise ResourceExhausted(
                    f"The project has {MAX_OPEN} unfinished fetches.", reason="too_many_fetches"
                )
            scope = (fetch.organization_id, fetch.project_id)
            await self._quotas.require_room(connection, *scope, size=1)
            lately = await self._fetched(connection, fetch)
            may = await self._quotas.of(connection, Quota.FETCHED_BYTES, *scope)
            may.require(organization=lately[0] + 1, project=lately[1] + 1)
            await connection.execute(fetches.insert().values(_values(fetch)))
        return fetch

    async def room(self, fetch: Fetch) -> int | None:
        """The number of bytes that may still be fetched now; None without a bound.

        Raises PermissionDenied when all of it would be more than may be stored.
        """
        scope = (fetch.organization_id, fetch.project_id)
        async with self._database.autocommit() as connection:
            await self._quotas.require_room(connection, *scope, size=fetch.bytes_total)
            may = await self._quotas.of(connection, Quota.FETCHED_BYTES, *scope)
            organization, project = await self._fetched(connection, fetch)
        return may.room(organization=organization, project=project)

    @staticmethod
    async def _fetched(connection: AsyncConnection, fetch: Fetch) -> tuple[int, int]:
        """The bytes that the organization and the project fetched within a day."""
        count, ours = fetches.c.bytes_fetched, fetches.c.project_id == fetch.project_id
        query = sa.select(
            sa.func.coalesce(sa.func.sum(count), 0),
            sa.func.coalesce(sa.func.sum(count).filter(ours), 0),
        ).where(
            fetches.c.organization_id == fetch.organization_id,
            sa.or_(fetches.c.finished_at == 0, fetches.c.finished_at > now_seconds() - DAY_SECONDS),
        )
        organization, project = (await connection.execute(query)).one()
        return int(organization), int(project)

    async def get(self, principal: Principal, fetch_id: str) -> Fetch:
        """Returns a fetch of the caller's project; raises NotFound."""
        async with self._database.autocommit() as connection:
            query = fetches.select().where(fetches.c.id == fetch_id, _seen_by(principal))
            row = (await connection.execute(query)).first()
        if row is None:
            raise _unknown(fetch_id)
        return _to_fetch(row)

    async def list(self, principal: Principal, *, after: str, limit: int) -> Sequence[Fetch]:
        """The project's, newest first."""
        query = (
            fetches.select()
            .where(_seen_by(principal))
            .order_by(fetches.c.created_at.desc(), fetches.c.id.desc())
        )
        if after:
            last = await self.get(principal, after)
            place = sa.tuple_(fetches.c.created_at, fetches.c.id)
            query = query.where(place < sa.tuple_(sa.literal(last.created_at), last.id))
        async with self._database.autocommit() as connection:
            return [_to_fetch(row) for row in await connection.execute(query.limit(limit))]

    async def cancel(self, principal: Principal, fetch_id: str) -> Fetch:
        """Ends an open one, a repeat too; raises NotFound, FailedPrecondition once it is over."""
        ended = {"state": FetchState.CANCELLED, "finished_at": now_seconds()}
        async with self._database.begin() as connection:
            which = fetches.c.id == fetch_id, _seen_by(principal), _IS_OPEN
            statement = fetches.update().where(*which)
            await connection.execute(statement.values(ended))
        found = await self.get(principal, fetch_id)
        if found.state is not FetchState.CANCELLED:
            raise FailedPrecondition(f"The fetch has {found.state}.", reason="fetch_over")
        return found

    async def has_none(self) -> bool:
        """Returns True if there is nothing to claim, now or later."""
        return await self._needs_nothing()

    async def claim(self) -> tuple[str, Fetch | None]:
        """Leases one that is open, or of which something is left that nobody will use."""
        token, rows = await claim(
            self._database, fetches, _NEEDS_WORK, limit=1, seconds=LEASE_SECONDS
        )
        return token, _to_fetch(rows[0]) if rows else None

    async def advance(self, fetch: Fetch, token: str) -> bool:
        """Stores how far it is and renews the lease; false when it is another's, or cancelled."""
        names = (
            "state",
            "commit",
            "manifest",
            "bytes_done",
            "bytes_total",
            "bytes_fetched",
            "failures",
            "error_message",
        )
        values = {name: value for name, value in _values(fetch).items() if name in names}
        return await self._set(fetch, token, values | _lease(LEASE_SECONDS), _IS_OPEN)

    async def postpone(self, fetch: Fetch, token: str, seconds: float) -> None:
        """Gives it back, to be taken up again after a pause."""
        values = {"failures": fetch.failures, "lease_owner": None, **_lease(seconds)}
        values |= {"bytes_fetched": fetch.bytes_fetched, "error_message": fetch.error_message}
        await self._set(fetch, token, values | {"state": FetchState.QUEUED}, _IS_OPEN)

    async def fail(self, fetch: Fetch, token: str, code: str, message: str) -> None:
        """Ends it for good; what it brought is left to be cleared."""
        values = {"state": FetchState.FAILED, "error_code": code, "error_message": message}
        ended = {"finished_at": now_seconds(), "bytes_fetched": fetch.bytes_fetched}
        await self._set(fetch, token, values | ended | released(), _IS_OPEN)

    async def let_go(self, fetch: Fetch, token: str) -> None:
        """Gives the lease back, if it is still held."""
        await self._set(fetch, token, dict(released()), sa.true())

    async def cleared(self, fetch: Fetch, token: str) -> None:
        """Notes that nothing of it is left."""
        await self._set(fetch, token, {"version_id": ""} | released(), sa.true())

    async def complete(self, fetch: Fetch, token: str, version: Version) -> bool:
        """Makes it a version under its name; false when it is another's, or cancelled.

        Raises AlreadyExists when the name was taken meanwhile, PermissionDenied
        `quota_exceeded`.
        """
        done = {"state": FetchState.SUCCEEDED, "finished_at": now_seconds()} | released()
        async with self._database.begin() as connection:
            revision = await next_revision(connection)
            result = await connection.execute(
                fetches.update()
                .where(fetches.c.id == fetch.id, held(fetches, token), _IS_OPEN)
                .values(done)
            )
            if not result.rowcount:
                return False
            await connection.execute(versions.insert().values(values_of(version)))
            await point(connection, version, revision)
            size = version.manifest.size
            await self._quotas.store(connection, version.organization_id, version.project_id, size)
            return True

    async def _set(
        self, fetch: Fetch, token: str, values: dict[str, Any], where: sa.ColumnElement[bool]
    ) -> bool:
        statement = fetches.update().where(fetches.c.id == fetch.id, held(fetches, token), where)
        async with self._database.begin() as connection:
            return bool((await connection.execute(statement.values(values))).rowcount)


def _wish(fetch: Fetch) -> tuple[str, str, str, bool]:
    return fetch.name, fetch.repository, fetch.revision, fetch.is_global


def _lease(seconds: float) -> dict[str, Any]:
    return {"lease_until": sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)}


def _unknown(fetch_id: str) -> NotFound:
    return NotFound(f"No such fetch: {fetch_id[:64]!r}.", reason="fetch_not_found", param="id")
