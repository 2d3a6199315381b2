"""The log of operations: written once, read in order, with results for a day."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import (
    AlreadyExists,
    AppError,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from windlass.tuning.domain import unknown_run
from windlass.tuning.storage.tables import operations, runs, sessions

QUEUED = operations.c.state == sa.literal_column("'queued'")
# What is raised where nothing was written.
REFUSALS = (AlreadyExists, FailedPrecondition, NotFound, PermissionDenied, ResourceExhausted)
LEASE_SECONDS = 15.0
# Two that write the same operation at once do not see each other; the next look does.
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class NewOperation:
    """An operation that is about to be written."""

    id: str
    organization_id: str
    project_id: str
    run_id: str
    sampler_id: str
    seq_id: int
    # None: nothing else can be the same.
    slot: str | None
    digest: bytes
    body: bytes | None
    body_key: str = ""
    body_bytes: int = 0
    user_id: str = ""
    key_id: str = ""
    # Of who answers it at once, in the process that writes it.
    lease_owner: str | None = None


@dataclass(frozen=True, slots=True)
class WaitingRoom:
    """Operations of a project that may wait, and the refusal of one more."""

    most: int
    refusal: AppError


@dataclass(frozen=True, slots=True)
class Written:
    """The id of an operation, whether it is new, and whether the run has gone on without it."""

    id: str
    is_new: bool
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class KeptResult:
    """Result of an operation: in its row, or as an object."""

    state: str
    result: bytes | None
    result_key: str


def _given(name: str) -> sa.ColumnElement[Any]:
    kind = operations.c[name].type
    return sa.cast(sa.bindparam(f"new_{name}", type_=kind), kind)


_NEW = (*NewOperation.__slots__, "created_at")
_MAX = sa.bindparam("max_waiting", type_=sa.BigInteger)
_THERE = operations.alias("there")


def _writing(admitted: sa.FromClause | None) -> sa.Select[Any]:
    """The statement that admits, counts, writes and finds, for one trip to the database."""
    few = (
        sa.select(sa.literal(1))
        .where(operations.c.project_id == sa.bindparam("new_project_id"), QUEUED)
        .limit(_MAX)
        .subquery()
    )
    waiting = sa.select(sa.func.count().label("number")).select_from(few).cte("waiting")
    until = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)
    leased = sa.case((_given("lease_owner").is_not(None), until))
    values = sa.select(*map(_given, _NEW), leased)
    where, source = [waiting.c.number < _MAX], values.select_from(waiting)
    if admitted is not None:
        source = source.join(admitted, sa.true())
        where += [admitted.c.state.not_in(["deleted", "copied"]), admitted.c.end == ""]
    made = (
        insert(operations)
        .from_select([*_NEW, "lease_until"], source.where(*where))
        .on_conflict_do_nothing(index_elements=["slot"])
        .returning(operations.c.id)
        .cte("made")
    )
    found = waiting.outerjoin(made, sa.true()).outerjoin(
        _THERE, _THERE.c.slot == sa.bindparam("new_slot")
    )
    columns = (
        waiting.c.number, made.c.id.label("made_id"), _THERE.c.id, _THERE.c.digest,
        _THERE.c.project_id,
    )  # fmt: skip
    if admitted is None:
        return sa.select(*columns).select_from(found)
    of_run = (admitted.c.state, admitted.c.end, admitted.c.next_seq)
    return sa.select(*columns, *of_run).select_from(admitted.join(found, sa.true()))


_RUN = (
    sa.select(runs.c.state, runs.c.next_seq, sa.func.coalesce(sessions.c.end, "").label("end"))
    .outerjoin(sessions, sessions.c.id == runs.c.session_id)
    .where(runs.c.id == sa.bindparam("new_run_id"))
    .where(runs.c.project_id == sa.bindparam("new_project_id"))
    # No gap is passed meanwhile; whoever applies results waits for nothing.
    .with_for_update(of=runs, read=True, key_share=True)
    .cte("run")
)
# Made once: to make a statement costs as much as to run it.
_WRITE, _WRITE_OF_RUN = _writing(None), _writing(_RUN)


async def write(connection: AsyncConnection, new: NewOperation, room: WaitingRoom) -> Written:
    """Writes an operation, or finds the one that has its place.

    Raises AlreadyExists `body_differs`, and the room's refusal.
    """
    for _ in range(_LOOKS):
        found = (await connection.execute(_WRITE, _values(new, room.most))).one()
        if (written := _written(new, found, room)) is not None:
            return written
    raise _contended()


async def write_of_run(database: Database, new: NewOperation, room: WaitingRoom) -> Written:
    """Writes an operation of a run of a live session; raises NotFound, FailedPrecondition too.

    The run may end meanwhile: what it is asked then is ended by the sweeper.
    """
    for _ in range(_LOOKS):
        async with database.autocommit() as connection:
            found = (await connection.execute(_WRITE_OF_RUN, _values(new, room.most))).first()
        if found is None:
            raise unknown_run(new.run_id)
        if found.state == "deleted":
            raise FailedPrecondition(
                "The model was deleted.", reason="run_deleted", param="model_id"
            )
        if found.state == "copied":
            raise FailedPrecondition(
                "A copy is not trained; make a model of its checkpoint.",
                reason="run_is_copy",
                param="model_id",
            )
        if found.end:
            raise session_finished()
        if (written := _written(new, found, room)) is not None:
            is_late = 0 < new.seq_id < found.next_seq
            return replace(written, is_late=is_late)
    raise _contended()


def session_finished() -> FailedPrecondition:
    """The error of whatever a session is asked once it has finished."""
    return FailedPrecondition(
        "The session has finished; begin another.", reason="session_finished", param="session_id"
    )


def _values(new: NewOperation, max_waiting: int) -> dict[str, Any]:
    values = {f"new_{name}": getattr(new, name) for name in NewOperation.__slots__}
    return values | {"new_created_at": now_seconds(), "max_waiting": max_waiting}


def _written(new: NewOperation, found: Any, room: WaitingRoom) -> Written | None:
    if found.made_id is not None:
        return Written(new.id, is_new=True)
    if found.id is not None:
        if bytes(found.digest) != new.digest or found.project_id != new.project_id:
            raise AlreadyExists(
                "Another request has this sequence number.", reason="body_differs", param="seq_id"
            )
        return Written(found.id, is_new=False)
    if found.number >= room.most:
        raise room.refusal
    return None


def _contended() -> NotFound:
    return NotFound("The request with this sequence number is gone.", param="seq_id")


_ASKED = (
    sa.func.unnest(
        sa.bindparam("projects", type_=ARRAY(sa.Text)), sa.bindparam("ids", type_=ARRAY(sa.Text))
    )
    .table_valued("project_id", "id", name="asked")
    .render_derived()
)
_OUTCOMES = sa.select(
    operations.c.project_id,
    operations.c.id,
    operations.c.state,
    operations.c.result,
    operations.c.result_key,
).join(
    _ASKED,
    sa.and_(operations.c.id == _ASKED.c.id, operations.c.project_id == _ASKED.c.project_id),
)


async def outcomes(
    database: Database, wanted: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], KeptResult]:
    """Results of operations by project and id; one that is not there is not the project's."""
    projects, ids = map(list, zip(*set(wanted), strict=True))
    async with database.autocommit() as connection:
        rows: Sequence[Any] = (
            await connection.execute(_OUTCOMES, {"projects": projects, "ids": ids})
        ).all()
    return {
        (row.project_id, row.id): KeptResult(row.state, row.result, row.result_key) for row in rows
    }
