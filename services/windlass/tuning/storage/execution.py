"""Queries of what carries the log out: what is due, and what became of it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, claim_within, held, released
from windlass.tuning.domain import CheckpointPath
from windlass.tuning.storage.log import LEASE_SECONDS, QUEUED
from windlass.tuning.storage.outcomes import (
    FINISH,
    WRITE_RESULTS,
    Effects,
    WrittenCheckpoint,
    given,
    writing,
)
from windlass.tuning.storage.tables import checkpoints, operations, runs, samplers, sessions

Row = sa.Row[Any]
RENEW_SECONDS = 5.0
# After which a trainer of all parameters is given to another run that waits for one: bringing a
# run back takes as long as reading its state.
REST_SECONDS = 10
# Of one run, at once.
DUE_AT_ONCE = 64

_FULL_LOCK = sa.func.hashtextextended("tuning full runs", 0)
_ACTIVE = runs.c.state == sa.literal_column("'active'")
_DUE = sa.exists().where(
    operations.c.run_id == runs.c.id, QUEUED, operations.c.seq_id <= runs.c.next_seq
)
_OF_SAMPLERS = sa.and_(QUEUED, operations.c.sampler_id != "")


class ExecutionStore:
    """Leased runs and samples of every project."""

    def __init__(self, database: Database, *, full_trainers: int):
        self._database = database
        self._full_trainers = full_trainers

    async def claim_runs(self, limit: int) -> tuple[str, Sequence[Row]]:
        """Leases runs of adapters with something due."""
        return await claim(
            self._database,
            runs,
            sa.and_(_ACTIVE, _DUE, ~runs.c.is_full),
            limit=limit,
            seconds=LEASE_SECONDS,
            order=runs.c.last_request_at,
        )

    async def claim_full_runs(self, limit: int) -> tuple[str, Sequence[Row]]:
        """Leases runs of all parameters with something due, as the installation has trainers.

        A lease is a trainer: whoever holds it has one, of whatever process.
        """
        if not self._full_trainers:
            return "", ()
        async with self._database.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_FULL_LOCK)))
            held = sa.select(sa.func.count()).where(
                runs.c.is_full, runs.c.lease_until >= sa.func.now()
            )
            room = self._full_trainers - (await connection.execute(held)).scalar_one()
            if room <= 0:
                return "", ()
            return await claim_within(
                connection,
                runs,
                sa.and_(_ACTIVE, _DUE, runs.c.is_full),
                limit=min(limit, room),
                seconds=LEASE_SECONDS,
                order=runs.c.last_request_at,
            )

    async def claim_samples(self, limit: int) -> tuple[str, Sequence[Row]]:
        """Leases what samplers are asked."""
        return await claim(
            self._database,
            operations,
            _OF_SAMPLERS,
            limit=limit,
            seconds=LEASE_SECONDS,
            order=operations.c.sequence,
        )

    async def leaving(
        self, run_ids: Collection[str], before: int, *, room_is_wanted: bool
    ) -> list[str]:
        """The ids of runs, among these, that are over, or that have nothing due while nothing was
        heard of their sessions since `before`, or while another one waits for their trainer, or
        somebody for the room that it takes.
        """
        silent = sa.exists().where(
            sessions.c.id == runs.c.session_id, sessions.c.heartbeat_at < before
        )
        query = sa.select(runs.c.id).where(
            runs.c.id.in_(run_ids),
            sa.or_(~_ACTIVE, sa.and_(sa.or_(silent, _in_the_way(room_is_wanted)), ~_DUE)),
        )
        async with self._database.autocommit() as connection:
            return list(await connection.scalars(query))

    async def over(self, run_ids: Collection[str]) -> list[str]:
        """The ids of runs, among these that wait for a trainer, that are over.

        One that never began is over once its session has ended.
        """
        these = runs.c.id.in_(run_ids)
        ended = sa.exists().where(sessions.c.id == runs.c.session_id, sessions.c.end != "")
        async with self._database.begin() as connection:
            await connection.execute(
                runs.update()
                .where(these, _ACTIVE, ~runs.c.is_open, ended)
                .values(state="deleted")
            )  # fmt: skip
            return list(await connection.scalars(sa.select(runs.c.id).where(these, ~_ACTIVE)))

    async def live(self, session_ids: Collection[str], before: int) -> set[str]:
        """The ids of sessions, among these, that go on, and were heard of since `before`."""
        query = sa.select(sessions.c.id).where(
            sessions.c.id.in_(session_ids), sessions.c.end == "", sessions.c.heartbeat_at >= before
        )
        async with self._database.autocommit() as connection:
            return set(await connection.scalars(query))

    async def with_due(self, run_ids: Collection[str]) -> list[str]:
        """The ids of runs, among these, that have something due."""
        query = sa.select(runs.c.id).where(runs.c.id.in_(run_ids), _ACTIVE, _DUE)
        async with self._database.autocommit() as connection:
            return list(await connection.scalars(query))

    async def run(self, run_id: str) -> Row:
        """A run of which a lease is held, as it is now."""
        async with self._database.autocommit() as connection:
            return (await connection.execute(runs.select().where(runs.c.id == run_id))).one()

    async def due(self, run_id: str, next_seq: int) -> list[Row]:
        """Operations that a run has to do now: those without a number, then number by number."""
        query = (
            operations.select()
            .where(operations.c.run_id == run_id, QUEUED)
            .order_by(operations.c.seq_id, operations.c.sequence)
            .limit(DUE_AT_ONCE)
        )
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query)).all()
        found: list[Row] = []
        for row in rows:
            if row.seq_id > next_seq:
                break
            found.append(row)
            if row.seq_id == next_seq:
                next_seq += 1
        return found

    async def since_state(self, run: Row, after: int) -> list[Row]:
        """Operations that were carried out for a run after a place, the first ones."""
        query = (
            operations.select()
            .where(operations.c.run_id == run.id, operations.c.place > after)
            .where(operations.c.place <= run.places)
            .order_by(operations.c.place)
            .limit(DUE_AT_ONCE)
        )
        async with self._database.autocommit() as connection:
            return list(await connection.execute(query))

    async def renew_runs(self, tokens: Mapping[str, str]) -> set[str]:
        """Keeps leases of runs, by their tokens; returns those that are kept."""
        mine = sa.tuple_(runs.c.id, runs.c.lease_owner).in_(list(tokens.items()))
        statement = runs.update().where(mine).values(lease_until=_until()).returning(runs.c.id)
        async with self._database.autocommit() as connection:
            return set(await connection.scalars(statement))

    async def renew_sample(self, operation_id: str, token: str) -> None:
        """Keeps the lease of what a sampler was asked."""
        async with self._database.autocommit() as connection:
            await connection.execute(
                operations.update()
                .where(operations.c.id == operation_id, held(operations, token))
                .values(lease_until=_until())
            )

    async def release(self, run_id: str, token: str) -> None:
        """Gives a run back."""
        async with self._database.autocommit() as connection:
            await connection.execute(
                runs.update().where(runs.c.id == run_id, held(runs, token)).values(**released())
            )

    async def apply(self, run: Row, token: str, effects: Effects) -> Row | None:
        """Writes results and what they change; returns the run as it is then.

        None, and nothing is changed, if the run is another's, or no longer active.
        """
        values = dict(effects.run)
        if "next_seq" in values:
            # A gap may have been passed meanwhile.
            values["next_seq"] = sa.func.greatest(runs.c.next_seq, values["next_seq"])
        mine = (
            runs.update()
            .where(runs.c.id == run.id, held(runs, token), _ACTIVE)
            .values(last_request_at=now_seconds(), lease_until=_until(), **values)
            .returning(runs)
        )
        if not (effects.ready or effects.samplers):
            return await self._apply_at_once(mine, run.base_model, effects)
        async with self._database.begin() as connection:
            row: Row | None = (await connection.execute(mine)).first()
            if row is not None:
                await _apply_checkpoints(connection, run.id, effects)
                await connection.execute(WRITE_RESULTS, given(row.base_model, effects))
        return row

    async def _apply_at_once(
        self, mine: sa.UpdateBase, base_model: str, effects: Effects
    ) -> Row | None:
        """Applies results in one statement, for one trip to the database."""
        changed = mine.cte("changed")
        done = writing(sa.exists().where(changed.c.id.is_not(None)))
        statement = sa.select(changed).add_cte(*done)
        async with self._database.autocommit() as connection:
            applied: Row | None = (
                await connection.execute(statement, given(base_model, effects))
            ).first()
        return applied

    async def finish(self, token: str, base_model: str, effects: Effects) -> bool:
        """Writes the result of what a sampler was asked, where the lease is still held."""
        values = given(base_model, effects) | {"token": token}
        async with self._database.autocommit() as connection:
            return bool((await connection.execute(FINISH, values)).scalar_one())

    async def has_result(self, operation_id: str, key: str) -> bool:
        """Returns True if an operation's result is this object."""
        there = sa.exists().where(operations.c.id == operation_id, operations.c.result_key == key)
        return await self._database.ask(there)

    async def is_taken(self, path: CheckpointPath) -> bool:
        """Returns True if a checkpoint of a run has this name."""
        there = sa.exists().where(
            checkpoints.c.run_id == path.run_id,
            checkpoints.c.is_for_sampler == path.is_for_sampler,
            checkpoints.c.is_external == path.is_external,
            checkpoints.c.name == path.name,
            checkpoints.c.state == "ready",
        )
        return await self._database.ask(there)

    async def has_sampler(self, sampler_id: str) -> bool:
        """Returns True if a sampler has this id."""
        return await self._database.ask(sa.exists().where(samplers.c.id == sampler_id))

    async def inflight(self, sampler: Row) -> str:
        """The checkpoint that a sampler whose weights move has now."""
        query = sa.select(runs.c.inflight_checkpoint_id).where(runs.c.id == sampler.run_id)
        async with self._database.autocommit() as connection:
            return str((await connection.execute(query)).scalar_one_or_none() or "")


def _in_the_way(room_is_wanted: bool) -> sa.ColumnElement[bool]:
    """True of a run of all parameters that rests while another one has no trainer, or no room."""
    rests = sa.and_(runs.c.is_full, runs.c.last_request_at < now_seconds() - REST_SECONDS)
    if room_is_wanted:
        return rests
    other = runs.alias("other")
    waits = sa.exists().where(
        other.c.is_full,
        other.c.state == "active",
        sa.or_(other.c.lease_until.is_(None), other.c.lease_until < sa.func.now()),
        sa.exists().where(
            operations.c.run_id == other.c.id, QUEUED, operations.c.seq_id <= other.c.next_seq
        ),
    )
    return sa.and_(rests, waits)


def _until() -> sa.ColumnElement[Any]:
    return sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)


async def _apply_checkpoints(connection: AsyncConnection, run_id: str, effects: Effects) -> None:
    for written in effects.ready:
        if written.replaces:
            await connection.execute(_replaced(written.id))
        await connection.execute(ready(written, effects.place))
    if (state := effects.run.get("state_checkpoint_id")) is not None:
        # Nothing goes on from an earlier one that has no name.
        await connection.execute(
            checkpoints.update()
            .where(checkpoints.c.run_id == run_id, ~checkpoints.c.is_for_sampler)
            .where(checkpoints.c.name == "", checkpoints.c.id != state)
            .where(checkpoints.c.state == "ready")
            .values(state="deleting")
        )
    if effects.samplers:
        # A repeat of what was committed and not heard of changes nothing.
        statement = insert(samplers).on_conflict_do_nothing(index_elements=["id"])
        await connection.execute(statement, effects.samplers)


def ready(written: WrittenCheckpoint, place: int = 0) -> sa.Update:
    """The statement that makes a checkpoint readable."""
    return (
        checkpoints.update()
        .where(checkpoints.c.id == written.id)
        .values(state="ready", size=written.size, files=dict(written.files), place=place)
    )


def _replaced(checkpoint_id: str) -> sa.Update:
    """The one that has the name now goes away."""
    new = checkpoints.alias("new")
    return (
        checkpoints.update()
        .where(
            new.c.id == checkpoint_id,
            checkpoints.c.id != new.c.id,
            checkpoints.c.run_id == new.c.run_id,
            checkpoints.c.is_for_sampler == new.c.is_for_sampler,
            checkpoints.c.is_external == new.c.is_external,
            checkpoints.c.name == new.c.name,
            checkpoints.c.name != "",
            checkpoints.c.state == "ready",
        )
        .values(state="deleting")
    )
