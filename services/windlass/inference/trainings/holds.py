"""Engines that runs of tuning train: each is one run's, for as long as its trainer says so."""

from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database, metadata
from windlass.core.errors import FailedPrecondition
from windlass.inference.loads import CLOCK

# After which an engine is free whose run's trainer was heard of no more.
HELD_SECONDS = 60.0

held_engines = sa.Table(
    "inference_held_engines",
    metadata,
    sa.Column("version_id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False, index=True),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False, index=True),
    sa.Column("until", sa.Double, nullable=False),
)
_IS_HELD = held_engines.c.until >= CLOCK


@dataclass(frozen=True, slots=True)
class EngineHold:
    """A run's hold on the engine of a version."""

    version_id: str
    organization_id: str
    project_id: str
    model: str
    run_id: str


class EngineHoldStore:
    """Holds of every project."""

    def __init__(self, database: Database):
        self._database = database

    async def hold(self, hold: EngineHold) -> None:
        """Takes an engine for a run, or keeps it; raises FailedPrecondition while another has it.

        A run has one engine at a time: one that it had of another version is free.
        """
        values = asdict(hold) | {"until": CLOCK + HELD_SECONDS}
        statement = insert(held_engines).values(values)
        statement = statement.on_conflict_do_update(
            index_elements=["version_id"],
            set_=values,
            where=sa.or_(held_engines.c.run_id == hold.run_id, sa.not_(_IS_HELD)),
        )
        others = held_engines.c.run_id == hold.run_id, held_engines.c.version_id != hold.version_id
        async with self._database.begin() as connection:
            taken = (await connection.execute(statement.returning(held_engines.c.run_id))).first()
            if taken is None:
                raise engine_held(hold.model)
            await connection.execute(held_engines.delete().where(*others))

    async def release(self, project_id: str, run_id: str) -> None:
        """Gives a run's engine back; one that it does not have stays as it is."""
        mine = held_engines.c.project_id == project_id, held_engines.c.run_id == run_id
        async with self._database.begin() as connection:
            await connection.execute(held_engines.delete().where(*mine))

    async def holder(self, version_id: str) -> str:
        """The run that has the engine of a version; empty for none."""
        query = sa.select(held_engines.c.run_id).where(
            held_engines.c.version_id == version_id, _IS_HELD
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalar() or ""


def held_versions() -> sa.Select[tuple[str]]:
    """The query for versions whose engines runs have."""
    return sa.select(held_engines.c.version_id).where(_IS_HELD)


def engine_held(model: str) -> FailedPrecondition:
    """The refusal of an engine that a run of tuning trains."""
    return FailedPrecondition(
        f"A session of tuning trains the engine of {model!r}; it is free when that session has "
        "ended.",
        reason="engine_held",
        param="model",
    )
