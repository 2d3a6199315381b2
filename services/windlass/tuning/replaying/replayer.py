"""Proves runs by their logs, and begins others within them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import sqlalchemy as sa

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.errors import FailedPrecondition, ResourceExhausted
from windlass.core.ids import new_id
from windlass.core.objects import ObjectNotFound
from windlass.core.rpc.auth import Principal
from windlass.tuning.admission import known_model
from windlass.tuning.blobs import Blobs
from windlass.tuning.domain import EXCLUSIVE, CheckpointPath, option, run_id_of, valid_name
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.in_engine.admission import require_trained_by_trainer
from windlass.tuning.replaying.comparison import Comparison
from windlass.tuning.replaying.planning import Beginning, Route, RoutePlanner, log_gone
from windlass.tuning.replaying.shadow import Shadow, SourceGone
from windlass.tuning.storage.checkpoints import WeightsStore, prefix_of
from windlass.tuning.storage.history import RunHistory
from windlass.tuning.storage.runs import RunStore
from windlass.tuning.storage.sessions import TuningSessionStore
from windlass.tuning.submission import Submission
from windlass.tuning_api.trainers.port import Trainer

Row = sa.Row[Any]
FORK = "fork"
# In place of a project.
ALL_FULL = "full"


class Replayer:
    """Computes logs again, one at a time for each project."""

    def __init__(
        self,
        runs: RunStore,
        sessions: TuningSessionStore,
        checkpoints: WeightsStore,
        history: RunHistory,
        submission: Submission,
        trainer: Trainer,
        blobs: Blobs,
        folders: CheckpointFolders,
    ):
        self._runs = runs
        self._sessions = sessions
        self._checkpoints = checkpoints
        self._history = history
        self._submission = submission
        self._trainer = trainer
        self._blobs = blobs
        self._folders = folders
        self._planner = RoutePlanner(history, blobs)
        self._busy: set[str] = set()

    async def replay(self, caller: Principal, request: pb.ReplayRunRequest) -> pb.ReplayReport:
        """Computes what is in a run's log again, and compares it with what was answered.

        Raises NotFound, FailedPrecondition `log_gone`, ResourceExhausted, Unavailable.
        """
        run, last = await self._asked(caller, request.run_id, request.operation)
        route = await self._planner.longest(run, last)
        found = Comparison()
        if route.gone:
            found.gaps.append(f"Places 1 to {route.gone}: what was asked is no longer kept.")
        async with self._shadow(run) as shadow:
            beginning = await self._begun_anywhere(shadow, run, route, found)
            place = beginning.place
            while place < last:
                place = await self._compared(shadow, run, place, last, found)
        return pb.ReplayReport(
            run_id=run.id,
            agrees=not found.differing and found.results + found.weights > 0,
            began_at=beginning.name,
            first_place=beginning.place + 1,
            last_place=last,
            operations=found.operations,
            results_compared=found.results,
            weights_compared=found.weights,
            not_compared=found.uncompared,
            differing=found.differing,
            first_difference=found.first,
            gaps=found.gaps,
            exclusive=run.is_full or option(run.user_metadata, EXCLUSIVE),
        )

    async def fork(self, caller: Principal, request: pb.ForkRunRequest) -> pb.ForkedRun:
        """Begins another run with what a run was after an operation, in a session of its own.

        Raises NotFound, FailedPrecondition `log_gone`, ResourceExhausted, Unavailable.
        """
        name = valid_name(request.name or FORK)
        run, last = await self._asked(caller, request.run_id, request.operation)
        route = await self._planner.shortest(run, last)
        session_id = new_id("session-")
        path = CheckpointPath(run_id_of(session_id, 0), False, name)
        async with self._shadow(run) as shadow:
            await self._begun(shadow, route.beginning)
            place = route.beginning.place
            while place < last:
                place = await self._retraced(shadow, run, place, last)
            await self._begin_session(caller, session_id, name)
            await self._save(shadow, run, path)
        made = await self._submission.create_run(
            caller,
            pb.CreateRunRequest(
                session_id=session_id,
                from_path=str(path),
                with_optimizer=True,
                user_metadata=orjson.dumps(run.user_metadata).decode(),
            ),
        )
        return pb.ForkedRun(
            run_id=made.run_id, session_id=session_id, path=str(path), operation_id=made.id
        )

    async def _asked(self, caller: Principal, run_id: str, operation: str) -> tuple[Row, int]:
        """A run, and the place of an operation of it or its last one."""
        run = await self._runs.get(caller.require_project(), run_id)
        caller.require_model(run.base_model, "model_id")
        require_trained_by_trainer(run.user_metadata, "log that can be computed again")
        known_model(self._trainer.base_models, run.base_model)
        if not operation:
            return run, int(run.places)
        found = await self._history.operation(run, operation)
        if not found.place:
            raise FailedPrecondition(
                "The operation was not carried out.", reason="not_carried_out", param="operation"
            )
        return run, int(found.place)

    @asynccontextmanager
    async def _shadow(self, run: Row) -> AsyncIterator[Shadow]:
        # One that trains all parameters has a trainer beside those that the operator allows.
        busy = ALL_FULL if run.is_full else run.project_id
        if busy in self._busy:
            raise ResourceExhausted(
                "A replay runs that this one has to wait for; ask again when it has ended.",
                reason="too_many_replays",
            )
        self._busy.add(busy)
        model = known_model(self._trainer.base_models, run.base_model)
        shadow = Shadow(run, model, self._trainer, self._folders, self._checkpoints)
        try:
            yield shadow
        finally:
            try:
                await asyncio.shield(shadow.close())
            finally:
                self._busy.discard(busy)

    async def _begun_anywhere(
        self, shadow: Shadow, run: Row, route: Route, found: Comparison
    ) -> Beginning:
        """Begins a route, or after what it began with where that is gone."""
        try:
            await shadow.begin(route.beginning)
        except SourceGone as error:
            place = route.beginning.place
            beginning = await self._planner.after(run, place, route.last)
            if beginning is None or route.beginning.state is not None:
                raise log_gone("that it began with") from error
            found.gaps.append("What the run began with is no longer there.")
            await self._begun(shadow, beginning)
            return beginning
        return route.beginning

    async def _begun(self, shadow: Shadow, beginning: Beginning) -> None:
        try:
            await shadow.begin(beginning)
        except SourceGone as error:
            raise log_gone("that it began with") from error

    async def _compared(
        self, shadow: Shadow, run: Row, place: int, last: int, found: Comparison
    ) -> int:
        """Compares the next operations; returns the place of the last of them."""
        for row in await self._page(run, place, last):
            try:
                body = await self._body(row)
                retraced = await shadow.carry_out(row, body)
            except (SourceGone, ObjectNotFound):
                return await self._passed(shadow, run, row.place, last, found)
            kind = body.WhichOneof("body") or ""
            found.add(row, kind, await self._recorded(row), retraced)
            place = row.place
        return place

    async def _passed(
        self, shadow: Shadow, run: Row, place: int, last: int, found: Comparison
    ) -> int:
        """Goes on at the next saved state after what cannot be computed; ends without one."""
        beginning = await self._planner.after(run, place, last)
        end = beginning.place if beginning else last
        found.gaps.append(f"Places {place} to {end}: what they went on from is no longer there.")
        if beginning is not None:
            await self._begun(shadow, beginning)
        return end

    async def _retraced(self, shadow: Shadow, run: Row, place: int, last: int) -> int:
        for row in await self._page(run, place, last):
            try:
                await shadow.carry_out(row, await self._body(row))
            except (SourceGone, ObjectNotFound) as error:
                raise log_gone(f"at place {row.place}") from error
            place = row.place
        return place

    async def _page(self, run: Row, place: int, last: int) -> list[Row]:
        rows = list(await self._history.page(run, place, last))
        if not rows or [row.place for row in rows] != list(range(place + 1, place + 1 + len(rows))):
            raise log_gone(f"after place {place}")
        return rows

    async def _body(self, row: Row) -> pb.OperationBody:
        return pb.OperationBody.FromString(await self._blobs.get(row.body, row.body_key))

    async def _recorded(self, row: Row) -> pb.Result | None:
        """The result as it is kept; None once it is not."""
        if row.state != "done":
            return None
        try:
            return pb.Result.FromString(await self._blobs.get(row.result, row.result_key))
        except ObjectNotFound:
            return None

    async def _begin_session(self, caller: Principal, session_id: str, name: str) -> None:
        await self._sessions.create(
            {
                "id": session_id,
                "organization_id": caller.organization_id,
                "project_id": caller.require_project(),
                "user_id": caller.user_id,
                "tags": [],
                "user_metadata": {},
                "sdk_version": "",
                "display_name": name,
            }
        )

    async def _save(self, shadow: Shadow, run: Row, path: CheckpointPath) -> None:
        row = {
            "id": new_id("ckpt_"),
            "organization_id": run.organization_id,
            "project_id": run.project_id,
            "run_id": path.run_id,
            "base_model": run.base_model,
            "settings": run.settings,
            "name": path.name,
            "is_for_sampler": False,
            "user_metadata": {},
            "expires_at": 0,
        }
        await self._checkpoints.begin(row)
        async with shadow.state() as folder:
            prefix = prefix_of(run.project_id, row["id"])
            size, files = await self._blobs.upload(folder, prefix)
        await self._checkpoints.complete(run.project_id, row["id"], size, files)
