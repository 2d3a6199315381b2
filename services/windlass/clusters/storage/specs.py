"""Every query on a cluster's spec: the desired state beside its workloads.

Every change advances its revision first, which holds the cluster's row until the
commit; what it adds carries that revision, so that a report can be held against it.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import policy
from windlass.clusters.storage.tables import assignments, clusters, quotas, workloads
from windlass.core.db import Database
from windlass.core.db.leases import no_rows
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.workload_phases import TERMINAL_PHASES

# Of an assignment, the same in its row and on the wire.
FIELDS = ("local_queue", "cluster_queue", "priority_class", "price_micros")


def unknown_cluster(cluster_id: str) -> NotFound:
    """The error for a cluster that does not exist."""
    return NotFound(f"The cluster {cluster_id!r} does not exist.", param="cluster_id")


async def advance(connection: AsyncConnection, cluster_id: str) -> tuple[int, str]:
    """The next revision of a cluster's spec and its executor, its row locked until the commit.

    Raises NotFound.
    """
    statement = (
        clusters.update()
        .where(clusters.c.id == cluster_id)
        .values(spec_revision=clusters.c.spec_revision + 1)
        .returning(clusters.c.spec_revision, clusters.c.executor)
    )
    row = (await connection.execute(statement)).first()
    if row is None:
        raise unknown_cluster(cluster_id)
    return int(row.spec_revision), str(row.executor)


def require_kubernetes(executor: str) -> None:
    """Raises FailedPrecondition `not_kubernetes` for a cluster without namespaces."""
    if executor == policy.PROCESS:
        raise FailedPrecondition(
            "This cluster is a machine and has no namespaces or queues.",
            reason="not_kubernetes",
            param="cluster_id",
        )


def assignment_of(row: Any) -> pb.Assignment:
    """A row as a message, without what is observed."""
    return pb.Assignment(
        cluster_id=row.cluster_id,
        project_id=row.project_id,
        organization_id=row.organization_id,
        namespace=row.namespace,
        node_selector=row.node_selector,
        created_at=int(row.created_at.timestamp()),
        removing=row.state != "assigned",
        **{name: getattr(row, name) for name in FIELDS},
    )


def busy() -> sa.Exists:
    """Returns True if a workload of the assignment's project has not ended there."""
    return sa.exists().where(
        workloads.c.cluster_id == assignments.c.cluster_id,
        workloads.c.namespace == assignments.c.namespace,
        workloads.c.phase.not_in(TERMINAL_PHASES),
        workloads.c.collected_at.is_(None),
    )


class SpecStore:
    """Specs of clusters, as their agents receive them."""

    def __init__(self, database: Database):
        self._database = database
        self.drains_nothing = no_rows(database, assignments.c.state == "draining")

    async def spec(self, cluster_id: str) -> pb.ClusterSpec:
        """The whole spec of a cluster, of this revision or a little newer."""
        revision = sa.select(clusters.c.spec_revision).where(clusters.c.id == cluster_id)
        rows = (
            assignments.select()
            .where(assignments.c.cluster_id == cluster_id, assignments.c.state != "draining")
            .order_by(assignments.c.namespace)
        )
        document = sa.select(quotas.c.spec).where(quotas.c.cluster_id == cluster_id)
        async with self._database.autocommit() as connection:
            spec = pb.ClusterSpec(
                cluster_id=cluster_id, revision=(await connection.execute(revision)).scalar() or 0
            )
            for row in await connection.execute(rows):
                place = spec.removed if row.state == "removing" else spec.assignments
                place.append(assignment_of(row))
            quota = (await connection.execute(document)).scalar()
        spec.quota.ParseFromString(quota or b"")
        return spec

    async def release(self) -> list[str]:
        """Lets agents remove unused assignments; returns the clusters to wake."""
        drained = sa.and_(assignments.c.state == "draining", ~busy())
        query = sa.select(assignments.c.cluster_id).where(drained).distinct()
        async with self._database.autocommit() as connection:
            found = sorted((await connection.execute(query)).scalars())
        for cluster_id in found:
            async with self._database.begin() as connection:
                revision, _ = await advance(connection, cluster_id)
                await connection.execute(
                    assignments.update()
                    .where(assignments.c.cluster_id == cluster_id, drained)
                    .values(state="removing", revision=revision)
                )
        return found


async def confirm(connection: AsyncConnection, cluster_id: str, status: pb.SpecStatus) -> None:
    """Deletes the rows of assignments that the agent has removed."""
    failed = list(status.assignment_errors)
    await connection.execute(
        assignments.delete().where(
            assignments.c.cluster_id == cluster_id,
            assignments.c.state == "removing",
            assignments.c.revision <= status.revision,
            assignments.c.project_id.not_in(failed),
        )
    )
