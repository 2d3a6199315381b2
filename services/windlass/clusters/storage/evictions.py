"""Every query on what may not stay in a cluster whose geography was changed.

A changed label leaves its mark in the cluster's row, which goes in the transaction that ended
all that may not be there: a process that is killed between leaves it to the next.
"""

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import records
from windlass.clusters.storage.statuses import store
from windlass.clusters.storage.tables import assignments, clusters, counters, workloads
from windlass.core.db import Database
from windlass.core.db.leases import no_rows
from windlass.workload_phases import TERMINAL_PHASES


class EvictionStore:
    """Clusters that got another label, and what is there of projects."""

    def __init__(self, database: Database):
        self._database = database
        self.is_settled = no_rows(database, clusters.c.relabelled)

    async def relabelled(self) -> Sequence[tuple[str, str]]:
        """Ids and labels of clusters where something may have to end."""
        query = sa.select(clusters.c.id, clusters.c.geography).where(clusters.c.relabelled)
        async with self._database.autocommit() as connection:
            return [(row.id, row.geography) for row in await connection.execute(query)]

    async def projects(self, cluster_id: str) -> set[str]:
        """Projects that have a workload in a cluster, or an assignment to it."""
        assigned = sa.select(assignments.c.project_id).where(
            assignments.c.cluster_id == cluster_id, assignments.c.state == "assigned"
        )
        async with self._database.autocommit() as connection:
            found = set((await connection.execute(assigned)).scalars())
            there = await _there(connection, cluster_id)
        return {one.project_id for one in there} | found

    async def evict(self, cluster_id: str, label: str, projects: Collection[str]) -> set[str]:
        """Ends what some projects have in a cluster, if that still has the label.

        Returns the owners to wake: to them it failed, for a reason that begins it elsewhere.
        """
        async with self._database.begin() as connection:
            mark = (
                clusters.update()
                .where(clusters.c.id == cluster_id, clusters.c.geography == label)
                .values(relabelled=False)
            )
            if (await connection.execute(mark)).rowcount == 0:
                # Another label is judged by itself; a cluster that is gone has nothing.
                return set()
            stream = counters.c.stream == records.cluster_topic(cluster_id)
            advance = counters.update().where(stream).values(revision=counters.c.revision + 1)
            revision = await connection.execute(advance.returning(counters.c.revision))
            number = revision.scalar_one()
            there = await _there(connection, cluster_id)
            leaving = [one for one in there if one.project_id in projects]
            owners = await store(
                connection, cluster_id, [(one.owner, _moved(one)) for one in leaving]
            )
            # After their statuses: what is deleted and has ended is not told to the agent.
            ids = workloads.c.id.in_([one.id for one in leaving])
            await connection.execute(
                workloads.update()
                .where(workloads.c.cluster_id == cluster_id, ids)
                .values(desired=pb.DESIRED_STATE_DELETED, revision=number)
            )
        return owners


async def _there(connection: AsyncConnection, cluster_id: str) -> list[pb.Workload]:
    """Workloads that bring something of a tenant's to a cluster, and have not ended."""
    query = sa.select(workloads.c.spec, workloads.c.generation).where(
        workloads.c.cluster_id == cluster_id,
        workloads.c.desired != int(pb.DESIRED_STATE_DELETED),
        workloads.c.kind != int(pb.WORKLOAD_KIND_STATUS_MIRROR),
        workloads.c.phase.not_in(TERMINAL_PHASES),
        workloads.c.collected_at.is_(None),
    )
    return [pb.Workload.FromString(row.spec) for row in await connection.execute(query)]


def _moved(workload: pb.Workload) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(
        workload_id=workload.id,
        generation=workload.generation,
        phase=pb.PHASE_FAILED,
        reason="GeographyChanged",
        message="The cluster has another geography now than the project's data.",
        cluster_id=workload.cluster_id,
    )
