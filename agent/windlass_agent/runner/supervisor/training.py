"""One training, from the start of its process to its last word."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.confinement import Bare, Confinement, Walls
from windlass.core.killpoints import reach
from windlass_agent.memory import out_of_memory_kills
from windlass_agent.runner.grading.grade_server import grade_server
from windlass_agent.runner.grading.judges import Judges
from windlass_agent.runner.protocol import outcome, trainer_events
from windlass_agent.runner.protocol.outcome import Failure, Stopped
from windlass_agent.runner.protocol.trainer_events import TrainerEvent
from windlass_agent.runner.protocol.world import ALONE, World
from windlass_agent.runner.reporting.metrics import History, openai_values
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.supervisor import exit_analysis
from windlass_agent.runner.supervisor.signals import StopSignal
from windlass_agent.runner.supervisor.spare import SpareTrainer
from windlass_agent.runner.supervisor.trainer import TrainerProcess
from windlass_agent.runner.transfer.checkpoints import CheckpointQueue, LocalCheckpoint


@dataclass(frozen=True, kw_only=True)
class TrainerLaunch:
    """Launch parameters of a trainer: its command, its files and its peers."""

    command: Sequence[str]
    env: Mapping[str, str]
    walls: Walls
    log: Path
    confinement: Confinement = field(default_factory=Bare)
    metrics: Path
    # What grades its answers, where models do, and the socket where it asks them.
    judges: Judges | None = None
    grades: Path
    world: World = ALONE
    # A trainer that was started before the job was known.
    spare: SpareTrainer | None = None


class TrainingSupervisor:
    """Drives a trainer and turns what it says into events and checkpoints."""

    def __init__(
        self, reporter: Reporter, checkpoints: CheckpointQueue, history: History, stop: StopSignal
    ) -> None:
        self._reporter = reporter
        self._checkpoints = checkpoints
        self._history = history
        self._stop = stop
        self._failure: Failure | None = None
        self.step = 0
        self.total_steps = 0
        self.trained_tokens = 0

    async def run(self, launch: TrainerLaunch, *, grace_seconds: float) -> None:
        """Returns when every step is made and every checkpoint uploaded.

        Raises Stopped when asked to stop before that, having uploaded what was saved within
        `grace_seconds`; raises Failure.
        """
        kills = out_of_memory_kills()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._checkpoints.run())
            code = await self._supervise(launch, grace_seconds=grace_seconds)
            self._checkpoints.close()
        self._judge(code, launch, memory_kills=out_of_memory_kills() - kills)

    async def _supervise(self, launch: TrainerLaunch, *, grace_seconds: float) -> int:
        async with _environment(launch) as env:
            trainer = await _started(launch, env)
            stopper = asyncio.create_task(self._forward_stop(trainer, grace_seconds))
            try:
                async for event in trainer_events.follow(launch.metrics, trainer.exited):
                    self._take(event)
                return trainer.exited.result()
            finally:
                stopper.cancel()
                trainer.kill()
                await trainer.exited

    async def _forward_stop(self, trainer: TrainerProcess, grace_seconds: float) -> None:
        await self._stop.requested.wait()
        trainer.terminate()
        forced = asyncio.ensure_future(self._stop.forced.wait())
        ends: set[asyncio.Future[Any]] = {forced, trainer.exited}
        await asyncio.wait(ends, timeout=grace_seconds, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        trainer.kill()

    def _judge(self, code: int, launch: TrainerLaunch, *, memory_kills: int) -> None:
        if self._failure:
            raise self._failure
        if code == 0 and self.step >= self.total_steps:
            return
        nodes = launch.world.nodes
        # All stop together, whichever of the nodes was asked to.
        if self._stop.requested.is_set() or (code == 0 and nodes > 1):
            raise Stopped
        if code == 0:
            raise Failure(
                "trainer_failed",
                f"The trainer ended at step {self.step} of {self.total_steps}.",
            )
        if launch.world.size > 1:
            raise exit_analysis.of_world(code, launch.log, nodes=nodes, memory_kills=memory_kills)
        raise outcome.of_exit(code, launch.log, memory_kills=memory_kills)

    def _take(self, event: TrainerEvent) -> None:
        self.step = max(self.step, event.step)
        self.total_steps = event.total_steps or self.total_steps
        match event:
            case trainer_events.Prepared():
                self._report_data(event)
            case trainer_events.Began():
                self._reporter.phase("training", f"Training begins at step {event.step + 1}.")
            case trainer_events.Logged():
                self._report_metrics(event)
            case trainer_events.Saved():
                reach("runner.checkpoint_saved")
                checkpoint = LocalCheckpoint(
                    event.step, Path(event.path), to_resume=event.to_resume
                )
                self._checkpoints.add(checkpoint)
            case trainer_events.Noted():
                self._reporter.warn(event.message)
            case trainer_events.Failed():
                self._failure = Failure(event.code, event.message, param=event.param)

    def _report_data(self, event: trainer_events.Prepared) -> None:
        fates = {"truncated": event.truncated, "left out": event.left_out}
        for fate, count in fates.items():
            if count:
                self._reporter.warn(
                    f"{count} of {event.examples} {event.split} examples exceed "
                    f"{event.limit} tokens and are {fate}."
                )
        if not any(fates.values()):
            self._reporter.info(f"{event.examples} {event.split} examples are ready.")

    def _report_metrics(self, event: trainer_events.Logged) -> None:
        self.trained_tokens = max(self.trained_tokens, event.trained_tokens)
        values = openai_values(event.logs)
        if not values:
            return
        self._history.add(event.step, values)
        metrics = pb.StepMetrics(
            step=event.step,
            total_steps=event.total_steps,
            epoch=event.epoch,
            trained_tokens=event.trained_tokens,
        )
        self._reporter.metrics(metrics, values)


async def _started(launch: TrainerLaunch, env: Mapping[str, str]) -> TrainerProcess:
    if launch.spare is not None:
        taken = await launch.spare.take(launch.command, env=env, walls=launch.walls)
        if taken is not None:
            return taken
    return await TrainerProcess.start(
        launch.command,
        env=env,
        walls=launch.walls,
        log=launch.log,
        confinement=launch.confinement,
    )


@contextlib.asynccontextmanager
async def _environment(launch: TrainerLaunch) -> AsyncIterator[Mapping[str, str]]:
    """The trainer's variables, while whatever they name is served."""
    if launch.judges is None:
        yield launch.env
        return
    async with grade_server(launch.judges, launch.metrics, launch.grades) as variables:
        yield {**launch.env, **variables}
