"""The statements that store statuses of workloads and number them for their owners."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import TypeEngine

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import records
from windlass.clusters.storage.tables import counters, workloads
from windlass.workload_phases import TERMINAL_PHASES


async def store(
    connection: AsyncConnection,
    cluster_id: str,
    changed: Sequence[tuple[str, pb.WorkloadStatus]],
) -> set[str]:
    """Stores statuses beside their owners; returns the owners to wake."""
    revisions = await _advance_owners(connection, (owner for owner, _ in changed))
    rows = {
        "cluster": cluster_id,
        "told_id": [status.workload_id for _, status in changed],
        "told_generation": [status.generation for _, status in changed],
        "told_phase": [status.phase for _, status in changed],
        "told_status": [status.SerializeToString() for _, status in changed],
        "told_revision": [revisions[owner] for owner, _ in changed],
    }
    await connection.execute(_APPLY, rows)
    return set(revisions)


async def _advance_owners(connection: AsyncConnection, owners: Iterable[str]) -> dict[str, int]:
    """The next status revision of each owner, locked until the commit."""
    revisions = {}
    for owner in sorted(set(owners)):
        values = {"topic": records.status_topic(owner)}
        revisions[owner] = int((await connection.execute(_ADVANCE_OWNER, values)).scalar_one())
    return revisions


# Statements made once: to make one costs as much as to run it.
_ADVANCE_OWNER = (
    insert(counters)
    .values(stream=sa.bindparam("topic"), revision=1)
    .on_conflict_do_update(index_elements=["stream"], set_={"revision": counters.c.revision + 1})
    .returning(counters.c.revision)
)
REPORTED = sa.select(
    workloads.c.id, workloads.c.owner, workloads.c.status, workloads.c.phase,
    workloads.c.generation, workloads.c.desired, workloads.c.collected_at,
).where(
    workloads.c.cluster_id == sa.bindparam("cluster"),
    workloads.c.id == sa.any_(sa.bindparam("ids", type_=ARRAY(sa.Text))),
)  # fmt: skip


def _telling() -> sa.Select[tuple[bytes, int]]:
    """An owner's statuses beyond a revision, each of its workload's newest generation."""
    newer = workloads.alias()
    moved = sa.exists().where(
        newer.c.id == workloads.c.id, newer.c.generation > workloads.c.generation
    )
    return (
        sa.select(workloads.c.status, workloads.c.status_revision)
        .where(
            workloads.c.owner == sa.bindparam("owner"),
            workloads.c.status_revision > sa.bindparam("after"),
            ~moved,
        )
        .order_by(workloads.c.status_revision)
    )


TOLD = _telling()


def _application() -> sa.Update:
    """Rows of workloads take their statuses, given column by column."""
    types: dict[str, type[TypeEngine[Any]]] = {
        "id": sa.Text, "generation": sa.BigInteger, "phase": sa.SmallInteger,
        "status": sa.LargeBinary, "revision": sa.BigInteger,
    }  # fmt: skip
    arrays = (sa.bindparam(f"told_{name}", type_=ARRAY(kind)) for name, kind in types.items())
    columns = (sa.column(name, kind) for name, kind in types.items())
    told = sa.func.unnest(*arrays).table_valued(*columns).render_derived(name="told")
    gone = sa.and_(
        told.c.phase.in_(sorted(TERMINAL_PHASES)),
        workloads.c.desired == int(pb.DESIRED_STATE_DELETED),
    )
    return (
        workloads.update()
        .where(
            workloads.c.cluster_id == sa.bindparam("cluster"),
            workloads.c.id == told.c.id,
            workloads.c.generation == told.c.generation,
        )
        .values(
            phase=told.c.phase,
            status=told.c.status,
            status_revision=told.c.revision,
            collected_at=sa.case((gone, sa.func.now()), else_=workloads.c.collected_at),
        )
    )


_APPLY = _application()
