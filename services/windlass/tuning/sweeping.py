"""Ends what would wait for ever, and removes what is no longer kept."""

from collections import defaultdict
from collections.abc import Awaitable, Callable

from windlass.core.clock import now_seconds
from windlass.core.config.tuning import TuningSection
from windlass.core.db.wake import Wake
from windlass.core.objects import ObjectStore
from windlass.tuning.blobs import Blobs
from windlass.tuning.execution.conversion import failed_with
from windlass.tuning.execution.executor import LogExecutor
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.execution.runs import LOST
from windlass.tuning.results import WAKE_RESULTS
from windlass.tuning.storage.checkpoints import archive_of, prefix_of
from windlass.tuning.storage.sweeping import SweepStore
from windlass.tuning.submission import WAKE_RUNS

_DELETED = failed_with("The model was deleted.", "run_deleted", "user").SerializeToString()
_LOST = failed_with(LOST, "trainer_lost").SerializeToString()
_GAP = failed_with(
    "An earlier request of the model never came.", "sequence_gap", "user"
).SerializeToString()


class Sweeper:
    """Rounds over what ends by itself; each says whether there may be more."""

    def __init__(
        self,
        store: SweepStore,
        executor: LogExecutor,
        objects: ObjectStore,
        blobs: Blobs,
        folders: CheckpointFolders,
        wake: Wake,
        settings: TuningSection,
    ):
        self._store = store
        self._executor = executor
        self._objects = objects
        self._blobs = blobs
        self._folders = folders
        self._wake = wake
        self._settings = settings

    async def once(self) -> bool:
        """Does a little of everything."""
        await self._store.forget_sessions()
        rounds: tuple[Callable[[], Awaitable[bool]], ...] = (
            self._end_over, self._pass_gaps, self._expire_results, self._forget_bodies,
            self._remove_checkpoints,
        )  # fmt: skip
        found = [await one() for one in rounds]
        silent_before = now_seconds() - self._settings.session_seconds
        await self._executor.let_go(silent_before=silent_before)
        # As long as a process stays that would read them.
        await self._folders.rest(self._settings.trainer_idle_seconds)
        return any(found)

    async def _end_over(self) -> bool:
        rows = await self._store.ended()
        for state, result in (("deleted", _DELETED), ("lost", _LOST)):
            ids = [row.id for row in rows if row.state == state]
            if ids:
                await self._store.end(ids, result)
        if rows:
            self._wake.touch(WAKE_RESULTS)
        return bool(rows)

    async def _pass_gaps(self) -> bool:
        rows = await self._store.stuck(now_seconds() - self._settings.gap_seconds)
        waiting = defaultdict(list)
        for row in rows:
            waiting[row.run_id].append(row)
        for run_id, stuck in waiting.items():
            ids = [row.id for row in stuck]
            await self._store.pass_gap(run_id, stuck[-1].seq_id, ids, _GAP)
        if rows:
            self._wake.touch(WAKE_RESULTS)
            self._wake.touch(WAKE_RUNS)
        return bool(rows)

    async def _expire_results(self) -> bool:
        before = now_seconds() - self._settings.result_seconds
        token, rows = await self._store.claim_results(before)
        for row in rows:
            await self._blobs.delete(row.result_key)
        if rows:
            await self._store.expire_results([row.id for row in rows], token)
        return bool(rows)

    async def _forget_bodies(self) -> bool:
        before = now_seconds() - self._settings.log_seconds
        token, rows = await self._store.claim_bodies(before)
        for row in rows:
            await self._blobs.delete(row.body_key)
        if rows:
            await self._store.forget_bodies([row.id for row in rows], token)
        return bool(rows)

    async def _remove_checkpoints(self) -> bool:
        token, rows = await self._store.claim_checkpoints()
        for row in rows:
            await self._objects.delete_prefix(prefix_of(row.project_id, row.id))
            await self._blobs.delete(archive_of(row.project_id, row.id))
            await self._store.remove_checkpoint(row.id, token)
        return bool(rows)
