"""Every query on assignments: which project has which namespace in which cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain import names, records
from windlass.clusters.domain.policy import PROCESS
from windlass.clusters.storage.inventory import items_of
from windlass.clusters.storage.specs import FIELDS, advance, assignment_of, busy
from windlass.clusters.storage.tables import assignments, clusters, observations, quotas
from windlass.core.db import Database
from windlass.core.errors import AlreadyExists, FailedPrecondition, InvalidArgument, NotFound
from windlass.core.rpc import audited
from windlass.residency.rule import require_cluster


class AssignmentStore:
    """Assignments of every cluster and project."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, wanted: pb.Assignment, geography: str = "") -> None:
        """Assigns a project of a geography to a cluster, or changes how; its namespace stays.

        Raises NotFound, InvalidArgument for a queue that the cluster has not, AlreadyExists
        for a namespace of another project, FailedPrecondition `namespace_fixed` and
        `geography_mismatch`.
        """
        async with self._database.begin() as connection:
            revision, executor = await advance(connection, wanted.cluster_id)
            await _require_label(connection, wanted.cluster_id, geography)
            if executor == PROCESS:
                _require_plain(wanted)
            await _require_queue(connection, wanted.cluster_id, wanted.cluster_queue)
            namespace = await _namespace(connection, wanted)
            values: dict[str, Any] = {
                "project_id": wanted.project_id,
                "organization_id": wanted.organization_id,
                "state": "assigned",
                "revision": revision,
                "node_selector": dict(wanted.node_selector),
                **{name: getattr(wanted, name) for name in FIELDS},
            }
            here = _assigned(wanted.cluster_id, wanted.project_id)
            former = (await connection.execute(assignments.select().where(*here))).mappings()
            told = {"cluster_id": wanted.cluster_id, "namespace": namespace, **values}
            audited.change(_told(former.first()), _told(told), resource=wanted.cluster_id)
            statement = insert(assignments).values(
                cluster_id=wanted.cluster_id, namespace=namespace, **values
            )
            await connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["cluster_id", "namespace"], set_=values
                )
            )

    async def delete(self, cluster_id: str, project_id: str) -> None:
        """Ends an assignment; what it made goes once the project's jobs there have ended.

        Raises NotFound.
        """
        async with self._database.begin() as connection:
            revision, executor = await advance(connection, cluster_id)
            here = _assigned(cluster_id, project_id)
            former = (await connection.execute(assignments.select().where(*here))).mappings()
            audited.change(_told(former.first()), None, resource=cluster_id)
            leaving = sa.case((busy(), "draining"), else_="removing")
            statement: sa.Update | sa.Delete = (
                assignments.update().where(*here).values(state=leaving, revision=revision)
            )
            if executor == PROCESS:
                # Its agent made nothing for the project, and has nothing to remove.
                statement = assignments.delete().where(*here)
            if (await connection.execute(statement)).rowcount == 0:
                raise NotFound(
                    f"Project {project_id!r} is not assigned to this cluster.", param="project_id"
                )

    async def get(self, cluster_id: str, project_id: str) -> pb.Assignment:
        """An assignment in force; raises NotFound."""
        for found in await self.all(cluster_id=cluster_id, project_id=project_id):
            if not found.removing:
                return found
        raise NotFound(
            f"Project {project_id!r} is not assigned to this cluster.", param="project_id"
        )

    async def all(
        self, *, cluster_id: str = "", project_id: str = "", organization_id: str = ""
    ) -> list[pb.Assignment]:
        """Assignments, filtered by cluster, project and organization where these are given."""
        query = _everything().order_by(assignments.c.cluster_id, assignments.c.namespace)
        for column, value in (
            (assignments.c.cluster_id, cluster_id),
            (assignments.c.project_id, project_id),
            (assignments.c.organization_id, organization_id),
        ):
            if value:
                query = query.where(column == value)
        return await self._judged(query)

    async def in_force(self) -> list[pb.Assignment]:
        """Assignments in force in every cluster, live or not."""
        return await self._judged(_everything().where(assignments.c.state == "assigned"))

    async def _judged(self, query: sa.Select[Any]) -> list[pb.Assignment]:
        async with self._database.autocommit() as connection:
            rows: Sequence[Any] = (await connection.execute(query)).all()
        statuses = {row.cluster_id: row.spec_status for row in rows if row.spec_status is not None}
        parsed = {one: pb.SpecStatus.FromString(status) for one, status in statuses.items()}
        return [
            records.judged(
                assignment_of(row),
                row.state,
                row.revision,
                _NOTHING_TO_DO if row.executor == PROCESS else parsed.get(row.cluster_id),
            )
            for row in rows
        ]


# A machine needs no preparation for a project.
_NOTHING_TO_DO = pb.SpecStatus(revision=2**62)


def _everything() -> sa.Select[Any]:
    return (
        sa.select(assignments, observations.c.spec_status, clusters.c.executor)
        .join(clusters, clusters.c.id == assignments.c.cluster_id)
        .outerjoin(observations, observations.c.cluster_id == assignments.c.cluster_id)
    )


def _assigned(cluster_id: str, project_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        assignments.c.cluster_id == cluster_id,
        assignments.c.project_id == project_id,
        assignments.c.state == "assigned",
    )


def _told(row: Mapping[Any, Any] | None) -> dict[str, Any] | None:
    """An assignment as the audit log has it."""
    names = ("cluster_id", "project_id", "organization_id", "namespace", "node_selector", *FIELDS)
    return None if row is None else {name: row[name] for name in names}


async def _namespace(connection: AsyncConnection, wanted: pb.Assignment) -> str:
    """The project's namespace: its present one, the requested one, or a derived one."""
    now = sa.select(assignments.c.namespace).where(*_assigned(wanted.cluster_id, wanted.project_id))
    present = (await connection.execute(now)).scalar()
    namespace = wanted.namespace or present or names.derived_namespace(wanted.project_id)
    if present not in (None, namespace):
        raise FailedPrecondition(
            f"The project is in the namespace {present}; unassign it first.",
            reason="namespace_fixed",
            param="namespace",
        )
    holder = sa.select(assignments.c.project_id, assignments.c.state).where(
        assignments.c.cluster_id == wanted.cluster_id, assignments.c.namespace == namespace
    )
    row = (await connection.execute(holder)).first()
    if row is not None and row.project_id != wanted.project_id:
        raise AlreadyExists(
            f"The namespace {namespace} belongs to project {row.project_id}"
            + ("." if row.state == "assigned" else ", and still being cleaned up."),
            param="namespace",
        )
    return namespace


async def _require_label(connection: AsyncConnection, cluster_id: str, geography: str) -> None:
    """Raises FailedPrecondition for a cluster that may have nothing of the geography."""
    if geography:
        query = sa.select(clusters.c.geography, clusters.c.name).where(clusters.c.id == cluster_id)
        row = (await connection.execute(query)).one()
        require_cluster(row.geography, geography, cluster=row.name, param="cluster_id")


def _require_plain(wanted: pb.Assignment) -> None:
    """Raises FailedPrecondition if a machine is given settings that only Kubernetes has."""
    for name in ("namespace", "cluster_queue", "priority_class"):
        if getattr(wanted, name):
            raise FailedPrecondition(
                "This cluster is a machine and has no namespaces or queues.",
                reason="not_kubernetes",
                param=name,
            )


async def _require_queue(connection: AsyncConnection, cluster_id: str, name: str) -> None:
    """Raises InvalidArgument for a ClusterQueue that neither exists nor is being created."""
    if not name:
        return
    document = sa.select(quotas.c.spec).where(quotas.c.cluster_id == cluster_id)
    spec = pb.QuotaSpec.FromString((await connection.execute(document)).scalar() or b"")
    if any(queue.name == name for queue in spec.cluster_queues):
        return
    seen = sa.select(observations.c.observed_at).where(observations.c.cluster_id == cluster_id)
    if (await connection.execute(seen)).scalar() is None:
        # Nobody has looked yet; the agent will say if it is missing.
        return
    there = await items_of(connection, cluster_id, ("cluster_queue",))
    if name not in {item.cluster_queue.name for item in there}:
        raise InvalidArgument(
            f"The cluster has no ClusterQueue {name!r}; see `windlass quota`.",
            reason="queue_not_found",
            param="cluster_queue",
        )
