"""Claims of the tables of inference, and the end of engines whose project leaves."""

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.leaving.claims import LeavingClaims, Scope, erased, nobodys, of_projects
from windlass.inference.feeds.store import answers, feeds
from windlass.inference.loads import adapter_loads, loads
from windlass.inference.prefetches.store import prefetches
from windlass.inference.stacks.store import stacks
from windlass.inference.store import engines, schedulers, servings, wants
from windlass.inference.trainings.holds import held_engines
from windlass.inference.trainings.store import steps, trainings

CLAIMS = LeavingClaims(
    "inference",
    (
        erased(servings, of_projects(servings)),
        erased(prefetches, of_projects(prefetches)),
        erased(trainings, of_projects(trainings)),
        erased(steps, of_projects(steps)),
        erased(answers, of_projects(answers)),
        erased(feeds, of_projects(feeds)),
        erased(held_engines, of_projects(held_engines)),
        erased(engines, of_projects(engines)),
        nobodys(wants, "ids of versions that are in use; they go once they are not"),
        nobodys(loads, "counts of open requests, for seconds"),
        nobodys(adapter_loads, "counts of open requests, for seconds"),
        nobodys(stacks, "the operator's"),
        nobodys(schedulers, "which process plans"),
    ),
)


class EnginesEnd:
    """Takes the reasons to run from the engines of a scope, and tells when they have ended."""

    def __init__(self, database: Database, wake: Wake):
        self._database = database
        self._wake = wake

    async def __call__(self, scope: Scope) -> str:
        """Returns what the erasure waits for."""
        own = scope.has_project(engines.c.project_id)
        used = sa.select(engines.c.version_id).where(own)
        async with self._database.begin() as connection:
            await connection.execute(
                servings.delete().where(scope.has_project(servings.c.project_id))
            )
            await connection.execute(feeds.delete().where(scope.has_project(feeds.c.project_id)))
            await connection.execute(wants.delete().where(wants.c.engine_version_id.in_(used)))
            remain = await connection.scalar(sa.select(sa.exists().where(own)))
        if not remain:
            return ""
        self._wake.touch("inference")
        return "engines, which are ending"
