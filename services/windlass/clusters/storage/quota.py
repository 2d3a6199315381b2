"""Every query on the quota of clusters: the document that we manage, and what is there."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import quota_document
from windlass.clusters.domain.borrowing import worked_out
from windlass.clusters.storage.inventory import items_of
from windlass.clusters.storage.specs import advance, require_kubernetes, unknown_cluster
from windlass.clusters.storage.tables import assignments, clusters, observations, quotas
from windlass.core.db import Database

_KINDS = ("cluster_queue", "local_queue", "flavor", "cohort")


class QuotaStore:
    """The quota of every cluster."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, request: pb.PutQuotaRequest) -> None:
        """Changes a cluster's document, whole or not at all.

        Raises NotFound, InvalidArgument, FailedPrecondition `queue_in_use`.
        """
        cluster_id = request.cluster_id
        async with self._database.begin() as connection:
            revision, executor = await advance(connection, cluster_id)
            require_kubernetes(executor)
            spec = quota_document.edited(
                await _spec(connection, cluster_id), request.put, request.delete
            )
            there = await items_of(connection, cluster_id, ("flavor", "cohort"))
            gone = set(request.delete)
            spec = quota_document.checked(
                spec,
                flavors={
                    one.flavor.name for one in there if f"flavor/{one.flavor.name}" not in gone
                },
                cohorts=[one.cohort for one in there if f"cohort/{one.cohort.name}" not in gone],
            )
            quota_document.require_unused(gone, await _queues_in_use(connection, cluster_id))
            values = {"spec": spec.SerializeToString(deterministic=True), "revision": revision}
            statement = insert(quotas).values(cluster_id=cluster_id, **values)
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["cluster_id"], set_=values)
            )

    async def quota(self, cluster_id: str) -> pb.Quota:
        """The document beside what the cluster has now; raises NotFound."""
        about = (
            sa.select(quotas.c.spec, quotas.c.revision, observations.c.spec_status)
            .select_from(clusters)
            .outerjoin(quotas, quotas.c.cluster_id == clusters.c.id)
            .outerjoin(observations, observations.c.cluster_id == clusters.c.id)
            .where(clusters.c.id == cluster_id)
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(about)).first()
            if row is None:
                raise unknown_cluster(cluster_id)
            items = await items_of(connection, cluster_id, _KINDS)
        there: dict[str, list[pb.InventoryItem]] = {kind: [] for kind in _KINDS}
        for item in items:
            there[item.WhichOneof("object") or ""].append(item)
        cohorts = [item.cohort for item in there["cohort"]]
        status = pb.SpecStatus.FromString(row.spec_status or b"")
        heard = row.revision is None or status.revision >= row.revision
        return pb.Quota(
            cluster_id=cluster_id,
            spec=pb.QuotaSpec.FromString(row.spec or b""),
            cluster_queues=worked_out(
                [item.cluster_queue for item in there["cluster_queue"]], cohorts
            ),
            local_queues=[item.local_queue for item in there["local_queue"]],
            flavors=[item.flavor for item in there["flavor"]],
            cohorts=cohorts,
            message=status.quota_error if heard else "The cluster's agent has not applied it yet.",
        )


async def _spec(connection: AsyncConnection, cluster_id: str) -> pb.QuotaSpec:
    query = sa.select(quotas.c.spec).where(quotas.c.cluster_id == cluster_id)
    return pb.QuotaSpec.FromString((await connection.execute(query)).scalar() or b"")


async def _queues_in_use(connection: AsyncConnection, cluster_id: str) -> dict[str, str]:
    """`cluster_queue/NAME` to a project that is assigned to it."""
    query = sa.select(assignments.c.cluster_queue, assignments.c.project_id).where(
        assignments.c.cluster_id == cluster_id, assignments.c.state != "removing"
    )
    return {f"cluster_queue/{row[0]}": row[1] for row in await connection.execute(query)}
