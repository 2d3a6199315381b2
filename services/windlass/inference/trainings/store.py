"""The tables of trainings of engines, and every query on them."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.db import Database, metadata
from windlass.core.db.leases import no_rows
from windlass.core.db.paging import newest_first
from windlass.core.errors import AlreadyExists, NotFound
from windlass.core.quotas import Quota, Quotas
from windlass.core.rpc.auth import Principal
from windlass.inference.loads import CLOCK
from windlass.inference.trainings.holds import held_versions
from windlass.inference.trainings.training import OPEN, EngineTraining

# Of steps in one answer.
STEPS_AT_ONCE = 1000

trainings = sa.Table(
    "inference_trainings",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False, index=True),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("key_id", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("version_id", sa.Text, nullable=False, index=True),
    sa.Column("suffix", sa.Text, nullable=False),
    sa.Column("mode", sa.Text, nullable=False),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("total_steps", sa.BigInteger, nullable=False),
    sa.Column("steps", sa.BigInteger, nullable=False),
    sa.Column("loss", sa.Double),
    sa.Column("kept_steps", sa.BigInteger),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("engine_id", sa.Text, nullable=False, index=True),
    sa.Column("cluster_id", sa.Text, nullable=False),
    sa.Column("checkpoint_model", sa.Text, nullable=False),
    sa.Column("deltas", postgresql.JSONB, nullable=False),
    sa.Column("weight_bytes", sa.BigInteger, nullable=False),
    sa.Column("uploaded_bytes", sa.BigInteger, nullable=False),
    sa.Column("is_cancelled", sa.Boolean, nullable=False),
    sa.Column("is_saved", sa.Boolean, nullable=False),
    sa.Column("is_counted", sa.Boolean, nullable=False),
    # Of a run of tuning; empty of what tenants ask for.
    sa.Column("run_id", sa.Text, nullable=False, server_default=""),
    sa.Column("output_bytes", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("outputs", sa.LargeBinary, nullable=False, server_default=""),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("put_generation", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("urls_at", sa.Double, nullable=False),
    sa.Column("finished_at", sa.Double, nullable=False),
    sa.UniqueConstraint("project_id", "idempotency_key"),
    sa.Index(
        "ix_inference_trainings_runs",
        "run_id",
        "created_at",
        postgresql_where=sa.text("run_id <> ''"),
    ),
)
steps = sa.Table(
    "inference_training_steps",
    metadata,
    sa.Column("training_id", sa.Text, primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("loss", sa.Double, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("held_out_loss", sa.Double),
    sa.Column("kl", sa.Double),
)
_IS_OPEN = trainings.c.state.in_(OPEN)
_IS_UNTOLD = trainings.c.put_generation < trainings.c.generation
_IS_PLACED = trainings.c.engine_id != ""
_OWES = sa.and_(sa.not_(_IS_OPEN), trainings.c.steps > 0, sa.not_(trainings.c.is_counted))
_LEARNED = sa.and_(
    sa.not_(_IS_OPEN), trainings.c.steps > 0, _IS_PLACED, sa.not_(trainings.c.is_saved)
)
# The engine, the cluster and the usage service have heard all of it.
IS_DONE = sa.not_(sa.or_(_IS_OPEN, sa.and_(_IS_PLACED, _IS_UNTOLD), _OWES, _LEARNED))


def to_training(row: Any) -> EngineTraining:
    """A row as a training."""
    return EngineTraining(**{one.name: getattr(row, one.name) for one in fields(EngineTraining)})


class EngineTrainingStore:
    """Trainings of engines of every project."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        untold = sa.and_(_IS_PLACED, _IS_UNTOLD)
        self.is_settled = no_rows(database, _IS_OPEN, untold, _OWES, _LEARNED)

    async def create(self, training: EngineTraining) -> EngineTraining:
        """Stores a training, or answers the one of its idempotency key.

        Raises AlreadyExists where that is of another request, and ResourceExhausted.
        """
        async with self._database.begin() as connection:
            scope = training.organization_id, training.project_id
            bounds = await self._quotas.hold(connection, Quota.ENGINE_TRAININGS, *scope)
            same = sa.and_(
                trainings.c.project_id == training.project_id,
                trainings.c.idempotency_key == training.idempotency_key,
            )
            if training.idempotency_key is not None:
                row = (await connection.execute(trainings.select().where(same))).first()
                if row is not None:
                    return same_request(to_training(row), training.digest)
            values = {one.name: getattr(training, one.name) for one in fields(EngineTraining)}
            times = {"created_at": CLOCK, "urls_at": CLOCK}
            await connection.execute(trainings.insert().values(values | times))
            if not training.run_id:
                # What runs compute is bounded by the quotas of tuning.
                organization, project = await _open(connection, *scope)
                bounds.require(organization=organization, project=project)
            found = trainings.select().where(trainings.c.id == training.id)
            return to_training((await connection.execute(found)).one())

    async def get(self, caller: Principal, identifier: str) -> EngineTraining:
        """A training of the caller's project; raises NotFound."""
        async with self._database.autocommit() as connection:
            query = trainings.select().where(
                trainings.c.id == identifier, trainings.c.run_id == "", _own(caller)
            )
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(
                f"No such training: {identifier[:64]!r}.", reason="training_not_found", param="id"
            )
        return to_training(row)

    async def newest(
        self, caller: Principal, *, model: str, after: str, limit: int
    ) -> Sequence[EngineTraining]:
        """The trainings of the caller's project, newest first."""
        # What runs compute is in their logs.
        ours = sa.and_(_own(caller), trainings.c.run_id == "")
        if model:
            ours = sa.and_(ours, trainings.c.model == model)
        query = newest_first(
            trainings.select().where(ours),
            trainings.c.created_at,
            trainings.c.id,
            after=after,
            of=ours,
        )
        async with self._database.autocommit() as connection:
            return [to_training(row) for row in await connection.execute(query.limit(limit))]

    async def steps_after(
        self, training: EngineTraining, step: int
    ) -> list[clusters_pb2.EngineTrainingStep]:
        """Some steps after a number, in their order."""
        mine = steps.c.training_id == training.id, steps.c.step > step
        query = steps.select().where(*mine).order_by(steps.c.step).limit(STEPS_AT_ONCE)
        async with self._database.autocommit() as connection:
            return [
                clusters_pb2.EngineTrainingStep(
                    step=row.step,
                    loss=row.loss,
                    tokens=row.tokens,
                    seconds=row.seconds,
                    held_out_loss=row.held_out_loss,
                    kl=row.kl,
                )
                for row in await connection.execute(query)
            ]

    async def has_open(self, project_id: str, key_prefix: str) -> bool:
        """True while one has not ended whose idempotency key begins so."""
        begins = trainings.c.idempotency_key.startswith(key_prefix, autoescape=True)
        mine = trainings.c.project_id == project_id, begins, _IS_OPEN
        async with self._database.autocommit() as connection:
            query = sa.select(sa.exists().where(*mine))
            return bool((await connection.execute(query)).scalar())

    async def cancel(self, training: EngineTraining) -> None:
        """Notes that it should end."""
        values = {"is_cancelled": True, "generation": trainings.c.generation + 1}
        again = sa.not_(trainings.c.is_cancelled), _IS_OPEN
        async with self._database.begin() as connection:
            await connection.execute(
                trainings.update().where(trainings.c.id == training.id, *again).values(values)
            )

    async def unsettled(self) -> tuple[float, list[EngineTraining]]:
        """The time, and the trainings that something is to be done for, the oldest first."""
        wanted = sa.or_(_IS_OPEN, sa.and_(_IS_PLACED, _IS_UNTOLD), _OWES)
        query = trainings.select().where(wanted).order_by(trainings.c.created_at, trainings.c.id)
        async with self._database.autocommit() as connection:
            now = (await connection.execute(sa.select(CLOCK))).scalar_one()
            return now, [to_training(row) for row in await connection.execute(query)]

    async def unsaved(self) -> list[EngineTraining]:
        """Returns the last training of each engine that learned since its last checkpoint."""
        query = (
            trainings.select()
            .where(_LEARNED)
            .ext(distinct_on(trainings.c.engine_id))
            .order_by(trainings.c.engine_id, trainings.c.finished_at.desc())
        )
        async with self._database.autocommit() as connection:
            return [to_training(row) for row in await connection.execute(query)]

    async def busy(self) -> frozenset[str]:
        """Versions whose engines are trained, or should be, or have learned what is not saved.

        Those that a run holds too, whatever it asks next.
        """
        trained = sa.select(trainings.c.version_id).where(sa.or_(_IS_OPEN, _LEARNED))
        query = sa.union(trained, held_versions())
        async with self._database.autocommit() as connection:
            return frozenset((await connection.execute(query)).scalars())

    async def change(self, training: EngineTraining, **values: Any) -> None:
        """Changes an open training, or what its cluster was told, unless somebody else has."""
        same = trainings.c.id == training.id, trainings.c.generation == training.generation
        async with self._database.begin() as connection:
            await connection.execute(trainings.update().where(*same).values(values))

    async def progress(
        self, training: EngineTraining, new: Sequence[clusters_pb2.EngineTrainingStep]
    ) -> None:
        """Notes steps that are new, and that it runs."""
        values: dict[str, Any] = {"state": "running", "reason": "", "message": ""}
        if new:
            values |= {"steps": new[-1].step, "loss": new[-1].loss}
        mine = trainings.c.id == training.id, trainings.c.steps == training.steps, _IS_OPEN
        async with self._database.begin() as connection:
            found = await connection.execute(trainings.update().where(*mine).values(values))
            if found.rowcount and new:
                await connection.execute(steps.insert(), [_step_of(training, one) for one in new])

    async def finish(self, training: EngineTraining, state: str, **values: Any) -> None:
        """Notes its end, so that the cluster may forget it.

        A checkpoint that succeeds has all that its engine had learned. One that nobody asked for is
        not tried again.
        """
        ended = {"state": state, "finished_at": CLOCK, "body": b""}
        ended |= {"generation": trainings.c.generation + 1} | values
        async with self._database.begin() as connection:
            mine = trainings.c.id == training.id, _IS_OPEN
            await connection.execute(trainings.update().where(*mine).values(ended))
            is_last_try = training.is_automatic and bool(training.engine_id)
            if training.is_checkpoint and (state == "succeeded" or is_last_try):
                of_engine = trainings.c.engine_id == training.engine_id
                await connection.execute(
                    trainings.update().where(of_engine, _LEARNED).values(is_saved=True)
                )

    async def lose(self, engine_ids: Sequence[str]) -> None:
        """Notes that engines have ended with what they had learned."""
        async with self._database.begin() as connection:
            gone = trainings.c.engine_id.in_(engine_ids)
            await connection.execute(trainings.update().where(gone, _LEARNED).values(is_saved=True))

    async def count(self, identifiers: Sequence[str]) -> None:
        """Notes that their tokens were counted."""
        async with self._database.begin() as connection:
            these = trainings.c.id.in_(identifiers)
            await connection.execute(trainings.update().where(these).values(is_counted=True))


def _own(caller: Principal) -> sa.ColumnElement[bool]:
    ours = trainings.c.project_id == caller.require_project()
    if caller.models is not None:
        ours = sa.and_(ours, caller.models.condition(trainings.c.model))
    return ours


def same_request(found: EngineTraining, digest: bytes) -> EngineTraining:
    """The training of a key; raises AlreadyExists where it is of another request."""
    if found.digest != digest:
        raise AlreadyExists(
            "The idempotency key belongs to another request.",
            reason="body_differs",
            param="idempotency_key",
        )
    return found


def _step_of(training: EngineTraining, one: clusters_pb2.EngineTrainingStep) -> dict[str, Any]:
    return {
        "training_id": training.id,
        "project_id": training.project_id,
        "step": one.step,
        "loss": one.loss,
        "tokens": max(0, one.tokens),
        "seconds": one.seconds,
        "held_out_loss": one.held_out_loss if one.HasField("held_out_loss") else None,
        "kl": one.kl if one.HasField("kl") else None,
    }


async def _open(
    connection: AsyncConnection, organization_id: str, project_id: str
) -> tuple[int, int]:
    """Open ones of an organization and of a project."""
    query = sa.select(
        sa.func.count(), sa.func.count().filter(trainings.c.project_id == project_id)
    ).where(trainings.c.organization_id == organization_id, trainings.c.run_id == "", _IS_OPEN)
    organization, project = (await connection.execute(query)).one()
    return int(organization), int(project)
