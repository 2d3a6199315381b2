"""Quotas: how much of something a project and its organization may have.

What is counted is counted in the transaction that makes its row, under a lock of the
organization, so that two processes never both take the last one. Stored bytes, whose rows
are too many to sum each time, are kept as a sum that changes with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.config import QuotasSection
from windlass.core.db import metadata
from windlass.core.errors import AppError, PermissionDenied, ResourceExhausted

REASON = "quota_exceeded"

bounds = sa.Table(
    "quotas_bounds",
    metadata,
    # An organization or a project.
    sa.Column("scope_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    # 0: none.
    sa.Column("bound", sa.BigInteger, nullable=False),
)
stored = sa.Table(
    "quotas_stored",
    metadata,
    sa.Column("scope_id", sa.Text, primary_key=True),
    sa.Column("bytes", sa.BigInteger, nullable=False),
)


class Quota(StrEnum):
    """Names of quotas."""

    ENGINES = "engines"
    JOBS = "jobs"
    RUNNING_JOBS = "running_jobs"
    UPLOADS = "uploads"
    STORED_BYTES = "stored_bytes"
    FETCHED_BYTES = "fetched_bytes"
    EVENT_STREAMS = "event_streams"
    ENGINE_TRAININGS = "engine_trainings"
    TUNING_RUNS = "tuning_runs"
    TUNING_FULL_RUNS = "tuning_full_runs"
    TUNING_OPERATIONS = "tuning_operations"
    TUNING_BODY_BYTES = "tuning_body_bytes"
    TUNING_CHECKPOINTS = "tuning_checkpoints"
    TUNING_CHECKPOINT_BYTES = "tuning_checkpoint_bytes"
    # Of an organization alone.
    PROJECTS = "projects"


# What a sentence calls it.
WORDS = {
    Quota.ENGINES: "engines at once",
    Quota.JOBS: "jobs that have not ended",
    Quota.RUNNING_JOBS: "running jobs",
    Quota.UPLOADS: "unfinished uploads",
    Quota.STORED_BYTES: "stored bytes",
    Quota.FETCHED_BYTES: "bytes fetched in 24 hours",
    Quota.EVENT_STREAMS: "event streams at once",
    Quota.ENGINE_TRAININGS: "trainings and checkpoints of engines that have not ended",
    Quota.TUNING_RUNS: "open models",
    Quota.TUNING_FULL_RUNS: "models of live sessions that train all parameters",
    Quota.TUNING_OPERATIONS: "operations that wait",
    Quota.TUNING_BODY_BYTES: "bytes in logs of models",
    Quota.TUNING_CHECKPOINTS: "named checkpoints of models",
    Quota.TUNING_CHECKPOINT_BYTES: "bytes of checkpoints of models",
    Quota.PROJECTS: "projects",
}
# Those that nothing but a deletion or a greater quota makes room in: asking again does not help.
_LASTING = {
    Quota.STORED_BYTES, Quota.FETCHED_BYTES, Quota.PROJECTS, Quota.TUNING_RUNS,
    Quota.TUNING_FULL_RUNS, Quota.TUNING_BODY_BYTES, Quota.TUNING_CHECKPOINTS,
    Quota.TUNING_CHECKPOINT_BYTES,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class QuotaBounds:
    """The two bounds of one thing; 0 is none."""

    quota: Quota
    organization: int
    project: int

    def require(self, *, organization: int, project: int) -> None:
        """Raises PermissionDenied or ResourceExhausted when so much is more than may be."""
        for scope, wanted, bound in (
            ("project", project, self.project),
            ("organization", organization, self.organization),
        ):
            if bound and wanted > bound:
                raise exceeded(self.quota, scope, wanted, bound)

    def room(self, *, organization: int, project: int) -> int | None:
        """The amount that is left; None without a bound."""
        left = [
            max(0, bound - used)
            for used, bound in ((project, self.project), (organization, self.organization))
            if bound
        ]
        return min(left, default=None)


def exceeded(quota: Quota, scope: str, wanted: int, bound: int) -> AppError:
    """The refusal of what would be more than a quota."""
    message = f"The {scope} would have {wanted} {WORDS[quota]}; its quota is {bound}."
    if quota in _LASTING:
        return PermissionDenied(message, reason=REASON, param=quota)
    return ResourceExhausted(message, reason=REASON, param=quota)


class Quotas:
    """The bounds of every tenant."""

    def __init__(self, defaults: QuotasSection):
        self._defaults: Mapping[str, int] = defaults.model_dump()

    def default(self, quota: Quota, *, project: bool) -> int:
        """The bound where none was set: the operator's for projects; none for organizations."""
        of_project = quota is not Quota.PROJECTS
        return self._defaults[quota] if project is of_project else 0

    async def hold(
        self, connection: AsyncConnection, quota: Quota, organization_id: str, project_id: str
    ) -> QuotaBounds:
        """The bounds, after waiting for every other transaction that holds the same.

        Count in a statement of its own after this one, and make the row in the transaction.
        """
        key = sa.func.hashtextextended(f"quota {quota} {organization_id}", 0)
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
        return await self.of(connection, quota, organization_id, project_id)

    async def of(
        self, connection: AsyncConnection, quota: Quota, organization_id: str, project_id: str
    ) -> QuotaBounds:
        """The bounds, without waiting."""
        query = sa.select(bounds.c.scope_id, bounds.c.bound).where(
            bounds.c.name == quota, bounds.c.scope_id.in_([organization_id, project_id])
        )
        found = {row.scope_id: row.bound for row in await connection.execute(query)}
        return QuotaBounds(
            quota,
            found.get(organization_id, self.default(quota, project=False)),
            found.get(project_id, self.default(quota, project=True)) if project_id else 0,
        )

    async def all(self, connection: AsyncConnection, quota: Quota) -> dict[str, int]:
        """Every bound that was set, by id, and the defaults, by `project` and `organization`."""
        query = sa.select(bounds.c.scope_id, bounds.c.bound).where(bounds.c.name == quota)
        defaults = {
            "organization": self.default(quota, project=False),
            "project": self.default(quota, project=True),
        }
        return defaults | {row.scope_id: row.bound for row in await connection.execute(query)}

    async def store(
        self, connection: AsyncConnection, organization_id: str, project_id: str, size: int
    ) -> None:
        """Counts bytes that are stored; raises PermissionDenied when they are too many."""
        used = await count_stored(connection, organization_id, project_id, size)
        held = await self.of(connection, Quota.STORED_BYTES, organization_id, project_id)
        held.require(organization=used.get(organization_id, 0), project=used.get(project_id, 0))

    async def require_room(
        self, connection: AsyncConnection, organization_id: str, project_id: str, size: int
    ) -> None:
        """Raises PermissionDenied when so many bytes more would be too many; counts nothing."""
        held = await self.of(connection, Quota.STORED_BYTES, organization_id, project_id)
        used = await stored_bytes(connection, (organization_id, project_id))
        held.require(
            organization=used.get(organization_id, 0) + size,
            project=used.get(project_id, 0) + size,
        )


async def count_stored(
    connection: AsyncConnection, organization_id: str, project_id: str, size: int
) -> dict[str, int]:
    """Counts bytes that are stored, or are no more, where less than 0; returns the sums.

    Call it in the transaction of the row that has them, last, as it locks the sums.
    """
    # One order for all, so that no two wait for each other.
    scopes = [scope for scope in (organization_id, project_id) if scope]
    row = insert(stored).values([{"scope_id": scope, "bytes": size} for scope in scopes])
    statement = row.on_conflict_do_update(
        index_elements=["scope_id"], set_={"bytes": stored.c.bytes + row.excluded.bytes}
    )
    found = await connection.execute(statement.returning(stored.c.scope_id, stored.c.bytes))
    return {one.scope_id: one.bytes for one in found}


async def set_bound(
    connection: AsyncConnection, scope_id: str, quota: Quota, bound: int | None
) -> None:
    """Sets the bound of an organization or a project; None takes it away."""
    key = {"scope_id": scope_id, "name": str(quota)}
    if bound is None:
        ours = sa.and_(bounds.c.scope_id == scope_id, bounds.c.name == quota)
        await connection.execute(bounds.delete().where(ours))
        return
    row = insert(bounds).values(bound=bound, **key)
    await connection.execute(
        row.on_conflict_do_update(index_elements=list(key), set_={"bound": bound})
    )


async def stored_bytes(connection: AsyncConnection, scopes: tuple[str, ...]) -> dict[str, int]:
    """The sums of some organizations and projects."""
    query = stored.select().where(stored.c.scope_id.in_(scopes))
    return {row.scope_id: row.bytes for row in await connection.execute(query)}
