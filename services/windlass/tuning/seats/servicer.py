"""SeatsService: who lives on shared devices, and who waits for what."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.api.tuning.v1 import seats_pb2 as pb
from windlass.api.tuning.v1 import seats_pb2_grpc as rpc
from windlass.core.clock import now
from windlass.core.db import Database
from windlass.core.db.paging import cut, page_size
from windlass.core.rpc.auth import Principal, current
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning.storage.tables import runs

OPERATE = "clusters.write"
MAX_SEATS = 100
Row = sa.Row[Any]


class SeatsServicer(rpc.SeatsServiceServicer):
    """Reads the ledger for its operator, and for the projects whose models are trained."""

    def __init__(self, database: Database):
        self._database = database

    async def ListSeats(self, request: pb.ListSeatsRequest, context: Any) -> pb.ListSeatsResponse:
        """Devices and seats that the caller may see."""
        caller = current()
        is_operator = caller.may(OPERATE)
        size = page_size(request.limit, max_limit=MAX_SEATS)
        seen = sa.true() if is_operator else _is_needed_by(caller.require_project())
        query = seats.select().where(seen).order_by(seats.c.sequence).limit(size + 1)
        if request.after:
            cursor = sa.select(seats.c.sequence).where(seats.c.id == request.after, seen)
            query = query.where(seats.c.sequence > cursor.scalar_subquery())
        async with self._database.autocommit() as connection:
            devices = {one.id: one for one in await connection.execute(leases.select())}
            everyone = list(await connection.execute(seats.select()))
            page, has_more = cut(list(await connection.execute(query)), size)
        rows = [one for one in page if caller.may_use(one.workload)]
        hosts = {one.host for one in rows}
        shown = [one for one in devices.values() if is_operator or one.host in hosts]
        return pb.ListSeatsResponse(
            devices=[_device(one) for one in sorted(shown, key=lambda one: (one.host, one.device))],
            seats=[
                _seat(one, devices.get(one.lease_id), everyone, caller, is_operator=is_operator)
                for one in rows
            ],
            has_more=has_more,
        )


def _is_needed_by(project_id: str) -> sa.ColumnElement[bool]:
    """The condition of seats of a project, and of shared ones that its runs train on."""
    trained = sa.exists().where(
        runs.c.project_id == project_id,
        runs.c.base_model == seats.c.workload,
        runs.c.state == "active",
    )
    return sa.or_(
        seats.c.project_id == project_id, sa.and_(seats.c.project_id == "", trained)
    )  # fmt: skip


def _device(row: Row) -> pb.Device:
    names = (
        "id", "host", "device_bytes", "host_bytes", "max_residents", "devices", "project_id",
        "queue",
    )  # fmt: skip
    return pb.Device(name=row.device, **{name: getattr(row, name) for name in names})


def _seat(
    row: Row, device: Row | None, everyone: Sequence[Row], caller: Principal, *, is_operator: bool
) -> pb.Seat:
    is_known = is_operator or row.turn_project_id == caller.project_id
    return pb.Seat(
        id=row.id,
        device=device.device if device is not None else "",
        host=row.host,
        workload=row.workload,
        role=row.role,
        project_id=row.project_id,
        device_bytes=row.device_bytes,
        host_bytes=row.host_bytes,
        state=row.turn if device is not None else "waiting",
        reason=_why(row, device, everyone),
        created_at=row.created_at,
        asked_at=int(row.asked_at or 0),
        turn_project_id=row.turn_project_id if is_known else "",
        turns=row.switches,
    )


def _why(row: Row, device: Row | None, everyone: Sequence[Row]) -> str:
    """Says why a seat waits, without a word of whom it waits for."""
    if device is None:
        return str(row.reason) or "It was just asked for."
    if row.asked_at is None:
        return ""
    beside = [one for one in everyone if one.lease_id == row.lease_id and one.id != row.id]
    before = sum(one.asked_at is not None and one.asked_at < row.asked_at for one in beside)
    said = f"{before} asked before it." if before else "It is the next that asked."
    for one in beside:
        if one.turn != "parked":
            seconds = max(now() - one.granted_at, 0.0)
            return f"Another has {device.device} for {seconds:.0f} s. {said}"
    return said
