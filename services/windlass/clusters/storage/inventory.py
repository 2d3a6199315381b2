"""Every query on what clusters have, as their agents report it."""

import re
from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.storage.clusters import require_session
from windlass.clusters.storage.specs import confirm, unknown_cluster
from windlass.clusters.storage.tables import AMOUNTS, clusters, inventory, observations
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, InvalidArgument

MAX_ITEMS = 50_000
MAX_ITEM_BYTES = 32 * 1024
MAX_STATUS_BYTES = 2**20
MAX_AMOUNT = 2**46
# So that a statement has no more parameters than Postgres takes.
BATCH = 2000

_KEY = re.compile(r"[!-~]{1,400}")


class InventoryStore:
    """The inventory of every cluster."""

    def __init__(self, database: Database):
        self._database = database

    async def report(self, cluster_id: str, report: pb.ReportInventoryRequest) -> None:
        """Applies a report whole, or not at all.

        Raises InvalidArgument, FailedPrecondition `session_superseded`, or `inventory_gap`
        for one that does not follow the last.
        """
        rows = {item.key: _row(cluster_id, item) for item in report.items}
        touched = [*rows, *(key for key in report.gone if key not in rows)]
        _check(report)
        async with self._database.begin() as connection:
            revision = await require_session(connection, cluster_id, report.session_id)
            await _follow(connection, cluster_id, report)
            await _remove(connection, cluster_id, None if report.snapshot else touched)
            if rows:
                await connection.execute(_INSERT, list(rows.values()))
            await _sum_up(connection, cluster_id)
            if report.HasField("spec_status") and report.spec_status.revision <= revision:
                await self._take_status(connection, cluster_id, report.spec_status)

    async def _take_status(
        self, connection: AsyncConnection, cluster_id: str, status: pb.SpecStatus
    ) -> None:
        await connection.execute(
            observations.update()
            .where(observations.c.cluster_id == cluster_id)
            .values(spec_status=status.SerializeToString())
        )
        await confirm(connection, cluster_id, status)

    async def inventory(self, cluster_id: str) -> pb.Inventory:
        """All objects of a cluster by key; raises NotFound."""
        about = (
            sa.select(observations.c.observed_at)
            .select_from(clusters)
            .outerjoin(observations, observations.c.cluster_id == clusters.c.id)
            .where(clusters.c.id == cluster_id)
        )
        items = (
            sa.select(inventory.c.item)
            .where(inventory.c.cluster_id == cluster_id)
            .order_by(inventory.c.key)
        )
        async with self._database.autocommit() as connection:
            found = (await connection.execute(about)).first()
            if found is None:
                raise unknown_cluster(cluster_id)
            answer = pb.Inventory(cluster_id=cluster_id)
            if found.observed_at is not None:
                answer.observed_at = int(found.observed_at.timestamp())
            for item in (await connection.execute(items)).scalars():
                answer.items.add().ParseFromString(item)
        return answer

    async def queues(self, cluster_ids: Collection[str]) -> dict[str, list[pb.InventoryItem]]:
        """ClusterQueues and Cohorts of some clusters."""
        query = sa.select(inventory.c.cluster_id, inventory.c.item).where(
            inventory.c.cluster_id.in_(list(cluster_ids)),
            inventory.c.kind.in_(("cluster_queue", "cohort")),
        )
        found: dict[str, list[pb.InventoryItem]] = {}
        async with self._database.autocommit() as connection:
            for row in await connection.execute(query):
                found.setdefault(row.cluster_id, []).append(pb.InventoryItem.FromString(row.item))
        return found


async def items_of(
    connection: AsyncConnection, cluster_id: str, kinds: Sequence[str]
) -> list[pb.InventoryItem]:
    """Objects of some kinds in a cluster."""
    query = (
        sa.select(inventory.c.item)
        .where(inventory.c.cluster_id == cluster_id, inventory.c.kind.in_(kinds))
        .order_by(inventory.c.key)
    )
    return [
        pb.InventoryItem.FromString(item) for item in (await connection.execute(query)).scalars()
    ]


_INSERT = inventory.insert()


def _row(cluster_id: str, item: pb.InventoryItem) -> dict[str, Any]:
    kind = item.WhichOneof("object")
    if not _KEY.fullmatch(item.key) or kind is None:
        raise InvalidArgument("An item needs a key and an object.", param="items")
    data = item.SerializeToString()
    if len(data) > MAX_ITEM_BYTES:
        raise InvalidArgument(
            f"{item.key} is too large ({len(data)} bytes); leave out labels.",
            reason="inventory_item_too_large",
            param="items",
        )
    values = {"cluster_id": cluster_id, "key": item.key, "kind": kind, "item": data}
    return values | dict(zip(AMOUNTS, _amounts(item), strict=True))


def _amounts(item: pb.InventoryItem) -> tuple[int, int, int, int]:
    """The amounts an object adds to its cluster: accelerators, those in use, CPU and memory."""
    counted = [item.device_class]
    if item.HasField("node"):
        # A node's part of a class counts with the class.
        counted = [one for one in item.node.accelerators if not one.is_device_class]
    allocatable = sum(one.allocatable for one in counted)
    # What waits for no node yet takes none away.
    used = sum(min(one.allocatable, one.running + one.pending) for one in counted)
    cpu, memory = (item.node.cpu_millis, item.node.memory_bytes) if item.node.ready else (0, 0)
    return _bounded(allocatable), _bounded(used), _bounded(cpu), _bounded(memory)


def _bounded(amount: int) -> int:
    """An amount, limited so that sums of agents' numbers cannot overflow."""
    return min(max(0, amount), MAX_AMOUNT)


def _check(report: pb.ReportInventoryRequest) -> None:
    if report.sequence < 0:
        raise InvalidArgument("sequence must not be negative.", param="sequence")
    if not all(map(_KEY.fullmatch, report.gone)):
        raise InvalidArgument("gone must hold the keys of items.", param="gone")
    status = report.spec_status
    if status.ByteSize() > MAX_STATUS_BYTES:
        raise InvalidArgument("The status is too large.", param="spec_status")
    if not all(map(_KEY.fullmatch, status.assignment_errors)):
        raise InvalidArgument("Errors must be keyed by project.", param="spec_status")


async def _follow(
    connection: AsyncConnection, cluster_id: str, report: pb.ReportInventoryRequest
) -> None:
    """Notes that this is the latest report; raises FailedPrecondition when one is missing."""
    values = {
        "session_id": report.session_id,
        "sequence": report.sequence,
        "observed_at": sa.func.now(),
    }
    if report.snapshot:
        statement = insert(observations).values(cluster_id=cluster_id, **values)
        await connection.execute(
            statement.on_conflict_do_update(index_elements=["cluster_id"], set_=values)
        )
        return
    columns = observations.c
    following = (
        observations.update()
        .where(
            columns.cluster_id == cluster_id,
            columns.session_id == report.session_id,
            columns.sequence == report.sequence - 1,
        )
        .values(**values)
    )
    if (await connection.execute(following)).rowcount == 0:
        raise FailedPrecondition(
            "This report does not follow the last one; send a snapshot.", reason="inventory_gap"
        )


async def _remove(connection: AsyncConnection, cluster_id: str, keys: Sequence[str] | None) -> None:
    """Drops some of a cluster's objects, or all."""
    here = inventory.delete().where(inventory.c.cluster_id == cluster_id)
    if keys is None:
        await connection.execute(here)
        return
    for start in range(0, len(keys), BATCH):
        batch = keys[start : start + BATCH]
        await connection.execute(here.where(inventory.c.key.in_(batch)))


async def _sum_up(connection: AsyncConnection, cluster_id: str) -> None:
    """Keeps the cluster's sums beside it; raises InvalidArgument for too many objects."""
    total = [sa.func.coalesce(sa.func.sum(inventory.c[name]), 0).label(name) for name in AMOUNTS]
    query = sa.select(sa.func.count().label("objects"), *total).where(
        inventory.c.cluster_id == cluster_id
    )
    row = (await connection.execute(query)).one()
    if row.objects > MAX_ITEMS:
        raise InvalidArgument(f"At most {MAX_ITEMS} objects are allowed.", param="items")
    values = {name: int(getattr(row, name)) for name in AMOUNTS}
    await connection.execute(
        observations.update().where(observations.c.cluster_id == cluster_id).values(**values)
    )
