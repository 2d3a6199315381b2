"""One training of an engine, or one checkpoint, until it has ended."""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass_agent.engines.port import EngineError
from windlass_agent.engines.weights.trained import TrainedEngine, TrainingRefused
from windlass_agent.executors.process.trainings.checkpoint_folder import (
    CheckpointFolder,
    UploadFailed,
)
from windlass_agent.executors.process.trainings.uploading import CheckpointUpload, put_bytes
from windlass_agent.folders import write_private
from windlass_agent.machine.program_output import one_line

log = telemetry.logger("trainings")
POLL_SECONDS = 0.2
TOLD_STEPS = 100
MESSAGE_LENGTH = 2000
# Of a request; the platform takes no larger one.
MAX_BYTES = 16 * 2**20
_MOST = 1e300
# How an engine that is to be trained is found; raises LookupError once it never will be.
Find = Callable[[str], TrainedEngine | None]
_PHASES = {
    "succeeded": pb.PHASE_SUCCEEDED,
    "failed": pb.PHASE_FAILED,
    "cancelled": pb.PHASE_STOPPED,
}


class TrainingFailure(Exception):
    """The end of a training, for a word and a sentence."""

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason


class TrainingRecord(msgspec.Struct):
    """Record of what survives a restart of the agent: the engine's name of the job."""

    job: str = ""


class EngineTrainingRun:
    """A training from its desired start until its end; `status` says how far it is."""

    def __init__(
        self,
        workload: pb.Workload,
        record: Path,
        find: Find,
        models: Callable[[str], Path],
        changed: Callable[[], None],
    ):
        """`models` leads to the files of a version of a model on this machine."""
        self.workload = workload
        self._upload = CheckpointUpload(
            lambda: self._spec, models, self._announce, record.with_suffix(".deltas")
        )
        self._record, self._find, self._changed = record, find, changed
        self._phase: pb.Phase.ValueType = pb.PHASE_PENDING
        self._reason, self._message = "WaitingForEngine", "Waiting for the engine"
        self._steps, self._total = 0, 0
        self._recent: deque[pb.EngineTrainingStep] = deque(maxlen=TOLD_STEPS)
        self._files: list[Any] = []
        self._deltas: list[Any] = []
        self._kept: int | None = None
        self._task = asyncio.create_task(self._live(), name=f"training {workload.id}")

    def apply(self, workload: pb.Workload) -> None:
        """Takes newer URLs, and whether it should end."""
        self.workload = workload

    def status(self) -> pb.WorkloadStatus:
        """The status."""
        return pb.WorkloadStatus(
            workload_id=self.workload.id,
            generation=self.workload.generation,
            phase=self._phase,
            reason=self._reason,
            message=self._message,
            training=pb.EngineTrainingStatus(
                steps=self._steps,
                total_steps=self._total,
                recent=self._recent,
                files=self._files,
                deltas=self._deltas,
                kept_steps=self._kept,
            ),
        )

    async def close(self) -> None:
        """Ends the task alone; the engine goes on."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def _spec(self) -> pb.EngineTrainingWorkload:
        return self.workload.engine_training

    @property
    def _is_stopped(self) -> bool:
        return self.workload.desired == pb.DESIRED_STATE_STOPPED

    async def _live(self) -> None:
        try:
            await self._done()
        except (TrainingFailure, TrainingRefused) as error:
            self._become(pb.PHASE_FAILED, error.reason, str(error))
        except UploadFailed as error:
            self._become(pb.PHASE_FAILED, "UploadFailed", str(error))
        except Exception as error:
            # Whatever it was: a training that nobody follows would never end.
            log.exception("training_failed", training=self.workload.id)
            self._become(pb.PHASE_FAILED, "Failed", str(error))

    async def _done(self) -> None:
        engine = await self._engine()
        if engine is None:
            self._become(pb.PHASE_STOPPED)
            return
        while (job := await self._submitted(engine)) is None:
            # It is asked again: the engine knows a request by its key.
            await asyncio.sleep(POLL_SECONDS)
            engine = await self._engine() or engine
        ended = await self._followed(job)
        state = str(ended.get("status"))
        if state == "succeeded" and not self._spec.HasField("request"):
            self._become(pb.PHASE_RUNNING, "Uploading")
            engine = await self._engine() or engine
            run = Path(str(ended.get("folder"))).parent.name
            folder = CheckpointFolder(engine.access.checkpoints, run)
            self._files = await self._upload.put(folder)
        if state == "succeeded" and self._spec.HasField("outputs"):
            engine = await self._engine() or engine
            content = await engine.outputs(job, self._spec.outputs.bytes)
            self._files = [await put_bytes(content, lambda: self._spec.outputs)]
        kept = ended.get("kept_steps")
        self._kept = None if kept is None else _whole(kept)
        reason, message = str(ended.get("reason") or ""), str(ended.get("message") or "")
        self._become(_PHASES.get(state, pb.PHASE_FAILED), reason, message)

    def _announce(self, deltas: list[Any]) -> None:
        self._deltas = deltas
        self._changed()

    async def _engine(self) -> TrainedEngine | None:
        """Waits for the engine; None where the training should end first."""
        while not (self._is_stopped and not _read(self._record).job):
            try:
                if (found := self._find(self._spec.engine_id)) is not None:
                    return found
            except LookupError as error:
                raise TrainingFailure("EngineEnded", "The engine has ended.") from error
            await asyncio.sleep(POLL_SECONDS)
        return None

    async def _submitted(self, engine: TrainedEngine) -> str | None:
        """The engine's name of the job; one that it was asked for before is not asked for anew.

        None where it did not answer; raises TrainingRefused.
        """
        if job := _read(self._record).job:
            return job
        try:
            if self._spec.HasField("request"):
                body = await _fetched(self._spec.request.url, bytes(self._spec.request.sha256))
                job = str((await engine.train(body))["job_id"])
            else:
                job = str((await engine.checkpoint())["job_id"])
        except TrainingRefused:
            raise
        except EngineError as error:
            log.info("training_not_asked", training=self.workload.id, error=str(error))
            return None
        await asyncio.to_thread(
            write_private, self._record, msgspec.json.encode(TrainingRecord(job))
        )
        return job

    async def _followed(self, job: str) -> dict[str, Any]:
        """The job at its end, through losses of contact; raises TrainingFailure."""
        cancels = asyncio.create_task(self._cancel_when_told(job))
        try:
            while True:
                engine = await self._engine()
                if engine is None:
                    raise TrainingFailure("EngineEnded", "The engine has ended.")
                try:
                    async for told in engine.follow(job):
                        if told.get("job_id") == job:
                            self._total = _whole(told.get("total_steps"))
                            return told
                        self._take(told)
                except TrainingRefused as error:
                    if error.reason == "job_unknown":
                        words = f"The engine was restarted after step {self._steps}."
                        raise TrainingFailure("EngineRestarted", words) from error
                    raise
                except EngineError as error:
                    log.info("training_unheard", training=self.workload.id, error=str(error))
                await asyncio.sleep(POLL_SECONDS)
        finally:
            cancels.cancel()

    def _take(self, told: dict[str, Any]) -> None:
        step, loss = _whole(told.get("step")), _finite(told.get("loss"))
        if step <= self._steps or loss is None:
            return
        self._steps = step
        self._recent.append(
            pb.EngineTrainingStep(
                step=step,
                loss=loss,
                tokens=_whole(told.get("tokens")),
                seconds=_finite(told.get("seconds")) or 0.0,
                held_out_loss=_finite(told.get("held_out_loss")),
                kl=_finite(told.get("kl")),
            )
        )
        self._become(pb.PHASE_RUNNING)

    async def _cancel_when_told(self, job: str) -> None:
        while not self._is_stopped:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        while True:
            try:
                if engine := self._find(self._spec.engine_id):
                    await engine.cancel(job)
                    return
            except (EngineError, LookupError) as error:
                log.info("training_not_cancelled", training=self.workload.id, error=str(error))
            await asyncio.sleep(POLL_SECONDS)

    def _become(self, phase: "pb.Phase.ValueType", reason: str = "", message: str = "") -> None:
        self._phase, self._reason = phase, one_line(reason, characters=100)
        self._message = one_line(message, characters=MESSAGE_LENGTH)
        self._changed()


def _read(record: Path) -> TrainingRecord:
    try:
        return msgspec.json.decode(record.read_bytes(), type=TrainingRecord)
    except (OSError, msgspec.MsgspecError):
        return TrainingRecord()


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0


def _finite(value: object) -> float | None:
    # No number, infinity or integer that a float cannot hold passes.
    return float(value) if isinstance(value, int | float) and abs(value) < _MOST else None


async def _fetched(url: str, sha256: bytes) -> bytes:
    """The request, which is what the platform promised; raises TrainingFailure."""
    timeout = aiohttp.ClientTimeout(total=120)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(URL(url, encoded=True)) as answer,
        ):
            answer.raise_for_status()
            content = bytearray()
            async for piece in answer.content.iter_any():
                content += piece
                if len(content) > MAX_BYTES:
                    break
    except (aiohttp.ClientError, TimeoutError) as error:
        raise TrainingFailure("DownloadFailed", "The request could not be read.") from error
    if hashlib.sha256(content).digest() != sha256:
        raise TrainingFailure("DownloadFailed", "The request is not what was promised.")
    return bytes(content)
