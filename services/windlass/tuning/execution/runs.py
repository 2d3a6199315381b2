"""Carries out what a run has to do, one number after the other, under its lease."""

from collections.abc import AsyncIterator, Collection, Sequence

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.objects import ObjectNotFound
from windlass.tuning.blobs import Blobs
from windlass.tuning.domain import (
    EXCLUSIVE,
    PROCESSES,
    cluster_choice,
    count_option,
    in_engine,
    option,
)
from windlass.tuning.execution.conversion import (
    computed_result,
    converted,
    digest_of,
    failed_with,
    is_computed,
)
from windlass.tuning.execution.counting import spent_on
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.execution.patience import patiently
from windlass.tuning.execution.replays import Replays
from windlass.tuning.execution.states import StateOperations
from windlass.tuning.in_engine.models import RunModels
from windlass.tuning.inbox import DueOperation
from windlass.tuning.storage.checkpoints import WeightsStore
from windlass.tuning.storage.execution import ExecutionStore, Row
from windlass.tuning.storage.outcomes import Effects
from windlass.tuning_api.trainers.port import RunNotOpen, Trainer, TrainerLost
from windlass.tuning_api.trainers.records import (
    ForwardBackward,
    OperationFailed,
    OptimStep,
    Outcome,
    Run,
)
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatRefused

log = telemetry.logger("tuning")
LOST = "The trainer was lost, and the run could not be replayed; go on from a checkpoint."
LATE = "The request came after the run had gone on without it."
NO_MODEL = "The base model is no longer here."
# Of a step whose trainer is lost again and again; half a minute in all.
TRIES = 8
Asked = tuple[DueOperation, pb.OperationBody]


class RunWorker:
    """Executes the log of one run at a time for many callers."""

    def __init__(
        self,
        store: ExecutionStore,
        checkpoints: WeightsStore,
        trainer: Trainer,
        blobs: Blobs,
        folders: CheckpointFolders,
        *,
        snapshot_operations: int,
    ):
        self._store = store
        self._trainer = trainer
        self._blobs = blobs
        self._folders = folders
        self._snapshot_operations = snapshot_operations
        self._models = RunModels(trainer.base_models)
        self._states = StateOperations(store, checkpoints, trainer, blobs, folders)
        self._replays = Replays(store, trainer, blobs, folders)
        # Runs that the trainer holds, as far as this process knows, and those that wait for one.
        self._open: set[str] = set()
        self._awaiting: set[str] = set()

    async def work(self, run: Row, due: Sequence[DueOperation]) -> AsyncIterator[Effects]:
        """Carries out operations that are due; yields what each step changes, to be applied."""
        if self._models.of(run) is None:
            yield await self._refuse(due, NO_MODEL, "unknown_base_model")
            return
        bodies = [(one, await self._body(one)) for one in due]
        places, device_time_ms = run.places, run.device_time_ms
        backoff = Backoff(shortest=0.1, longest=15.0)
        for attempt in range(TRIES):
            try:
                if not await self._ready(run):
                    break
                while bodies:
                    effects = await self._carry_out(run, _step(bodies), places)
                    places += len(effects.places)
                    if spent := sum(one.device_time_ms for one in effects.spent.values()):
                        device_time_ms += spent
                        effects.run["device_time_ms"] = device_time_ms
                    bodies = bodies[len(_step(bodies)) :]
                    yield effects
                return
            except SeatAwaited as error:
                # Nothing was done: the run is taken up again, and its trainer keeps its place.
                log.info("tuning_awaits_seat", run_id=run.id, reason=str(error))
                self._awaiting.add(run.id)
                return
            except SeatRefused as error:
                rest = [one for one, _ in bodies]
                yield await self._refuse(rest, str(error), "does_not_fit")
                return
            except (TrainerLost, RunNotOpen) as error:
                log.warning("tuning_trainer_lost", run_id=run.id, exc_info=error)
                await self.give_up(run.id)
                if attempt + 1 < TRIES:
                    await backoff.pause()
                run = await self._store.run(run.id)
                places, device_time_ms = run.places, run.device_time_ms
        yield await self._lose([one for one, _ in bodies])

    async def _carry_out(self, run: Row, step: list[Asked], places: int) -> Effects:
        effects = Effects()
        if step[0][0].seq_id and step[0][0].seq_id < run.next_seq:
            return await self._refuse([one for one, _ in step], LATE, "sequence_gap")
        if step[0][1].WhichOneof("body") != "open_run":
            effects.places = {one.id: places + at for at, (one, _) in enumerate(step, 1)}
            places += len(step)
            effects.run["places"] = places
        effects.place = places
        if is_computed(step[0][1]):
            await self._compute(run, step, effects)
        else:
            [(operation, body)] = step
            result = await self._states.carry_out(run, operation, body, effects)
            await self._keep(operation, result, effects)
        if "state_checkpoint_id" in effects.run:
            effects.run["state_place"] = places
        effects.run["next_seq"] = max(run.next_seq, *(one.seq_id + 1 for one, _ in step))
        return effects

    def holds(self, run_id: str) -> bool:
        """Returns True for a run that the trainer holds for this process."""
        return run_id in self._open

    async def park(self, run: Row) -> Effects:
        """Saves what a run is where that is not saved; returns what that changes."""
        effects = Effects(place=run.places)
        # What the trainer does not hold is replayed, and what an engine learned is in its weights.
        if run.is_dirty and self.holds(run.id) and not in_engine(run.user_metadata):
            await self._states.park(run, effects)
        if "state_checkpoint_id" in effects.run:
            effects.run["state_place"] = run.places
        return effects

    async def snapshot(self, run: Row) -> Effects | None:
        """Saves a run of which a replay would be long; returns what that changes."""
        is_long = run.places - run.state_place >= self._snapshot_operations
        if not (is_long and run.is_dirty and self.holds(run.id)) or in_engine(run.user_metadata):
            return None
        return await self.park(run)

    @property
    def awaiting(self) -> Collection[str]:
        """Returns the runs that have a place in line for a trainer."""
        return tuple(self._awaiting)

    async def close(self, run_id: str) -> None:
        """Has the trainer forget a run; one that waits for a seat keeps its place."""
        self._open.discard(run_id)
        if run_id not in self._awaiting:
            await self._trainer.close(run_id)
        await self._folders.forget(run_id.partition(":")[0])

    async def give_up(self, run_id: str) -> None:
        """Closes a run that does not wait for a seat any more."""
        self._awaiting.discard(run_id)
        await self.close(run_id)

    async def _body(self, operation: DueOperation) -> pb.OperationBody:
        try:
            content = await self._blobs.get(operation.body, operation.body_key)
        except ObjectNotFound:
            return pb.OperationBody()
        return pb.OperationBody.FromString(content)

    async def _ready(self, run: Row) -> bool:
        """Opens a run where that is needed; returns False if what it was is lost."""
        if run.id in self._open:
            return True
        await self._trainer.open(as_run(run))
        self._awaiting.discard(run.id)
        if run.is_open and not await self._replays.bring_back(run):
            return False
        self._open.add(run.id)
        return True

    async def _compute(self, run: Row, group: list[Asked], effects: Effects) -> None:
        model = self._models.of(run)
        if model is None:
            raise AssertionError("work refuses runs whose model is gone")
        asked: list[tuple[DueOperation, ForwardBackward | OptimStep]] = []
        for operation, body in group:
            try:
                asked.append((operation, converted(body, model, operation.id)))
            except InvalidArgument as error:
                await self._keep(
                    operation, failed_with(error.message, error.reason, "user"), effects
                )
        if not asked:
            return
        outcomes = await self._executed(run.id, [wish for _, wish in asked])
        for (operation, wish), outcome in zip(asked, outcomes, strict=True):
            await self._keep(operation, computed_result(outcome), effects)
            if (spent := spent_on(wish, outcome)) is not None:
                effects.spent[operation.id] = spent
            if isinstance(outcome, OperationFailed) or not _changes(wish):
                continue
            effects.run["is_dirty"] = True
            if in_engine(run.user_metadata) and isinstance(wish, OptimStep):
                # The engine has it, and what comes after it alone is brought back.
                effects.run |= {"is_dirty": False, "state_place": effects.places[operation.id]}

    async def _executed(
        self, run_id: str, wishes: Sequence[ForwardBackward | OptimStep]
    ) -> Sequence[Outcome]:
        """The trainer's outcomes; whatever it raises, it has lost the run. Raises TrainerLost."""
        try:
            return await self._trainer.execute(run_id, wishes)
        except (TrainerLost, RunNotOpen):
            raise
        except Exception as error:
            log.error("trainer_failed", run_id=run_id, exc_info=error)
            raise TrainerLost from error

    async def _keep(self, operation: DueOperation, result: pb.Result, effects: Effects) -> None:
        # Of this try alone: another holder's may be the one that is written.
        kind = new_id("result-")
        content, key = await patiently(
            lambda: self._blobs.put(
                result.SerializeToString(), operation.project_id, operation.id, kind
            )
        )
        effects.results.append((operation.id, content, key))
        effects.digests[operation.id] = digest_of(result)

    async def _refuse(self, rest: Sequence[DueOperation], message: str, reason: str) -> Effects:
        effects = Effects()
        for operation in rest:
            await self._keep(operation, failed_with(message, reason), effects)
        # What comes after them does not wait for them.
        effects.run["next_seq"] = max((one.seq_id + 1 for one in rest), default=0)
        return effects

    async def _lose(self, rest: Sequence[DueOperation]) -> Effects:
        effects = await self._refuse(rest, LOST, "trainer_lost")
        effects.run["state"] = "lost"
        return effects


def _step(bodies: list[Asked]) -> list[Asked]:
    """The operations that are applied together: computations in a row, or one of another kind."""
    number = 0
    while number < len(bodies) and is_computed(bodies[number][1]):
        number += 1
    return bodies[: max(number, 1)]


def as_run(row: Row) -> Run:
    """A run as trainers take it."""
    return Run(
        id=row.id,
        project_id=row.project_id,
        base_model=row.base_model,
        is_exclusive=row.is_full or option(row.user_metadata, EXCLUSIVE),
        processes=max(count_option(row.user_metadata, PROCESSES), 1),
        cluster=cluster_choice(row.user_metadata),
        is_in_engine=in_engine(row.user_metadata),
        **row.settings,
    )


def _changes(wish: ForwardBackward | OptimStep) -> bool:
    return isinstance(wish, OptimStep) or not wish.is_forward_only
