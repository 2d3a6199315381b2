"""Training of one engine: its jobs, one after the other, in a worker that comes with the first."""

import asyncio
import contextlib
import hashlib
import logging
from pathlib import Path

import msgspec

from windlass_vllm.api.attached_worker import AttachedWorker, TrainedEngine
from windlass_vllm.api.job_files import JobFiles
from windlass_vllm.api.jobs import FINAL, EngineJob, JobQueue
from windlass_vllm.api.requests import Bounds, TrainRequest
from windlass_vllm.api.serving_fence import ServingFence
from windlass_vllm.api.training_process import TrainingProcess
from windlass_vllm.checkpoints.disk import lock
from windlass_vllm.messages import (
    Applied,
    Cancel,
    Fence,
    JobEnded,
    PassComputed,
    PutBack,
    Ready,
    Save,
    StepDone,
    Train,
    VersionSaved,
)
from windlass_vllm.refusal import Refused
from windlass_vllm.run_folder import RunFolder
from windlass_vllm.settings import EngineTrainingSettings
from windlass_vllm.weights.private_folder import OwnFolder
from windlass_vllm.weights.step_counter import StepCounter

_CANCEL_SECONDS = 10
_PUT_BACK_SECONDS = 3600
_MOST_ATTEMPTS = 3
_DYING_SECONDS = 5
_PUT_BACK = "put-back"
_log = logging.getLogger("vllm.windlass_vllm")


class EngineTraining:
    """Trains an engine's weights in place while it serves.

    With a folder for checkpoints, jobs and the newest version outlive the API server.
    """

    def __init__(
        self, engine: TrainedEngine, model: str, bounds: Bounds, settings: EngineTrainingSettings
    ) -> None:
        self.bounds, self.running = bounds, None
        self._engine, self._settings, self._model = engine, settings, model
        self._run = _run_folder(model, settings)
        self.queue = JobQueue(JobFiles(self._run) if self._run else None)
        self._folder = OwnFolder(Path(settings.folder))
        self._counter = StepCounter(self._folder, new=True)
        self._worker = AttachedWorker(engine, self._folder, settings)
        self._fence = ServingFence(engine, settings.fence_seconds)
        progress = self._run.progress() if self._run else None
        # The engine serves what its folder has, which is older than the newest version.
        self._is_behind = self.is_behind = progress is not None
        self._is_mixed = False
        if progress:
            self._counter.start(progress.counted)

    running: EngineJob | None
    is_behind: bool
    """Whether the engine would answer with weights that are older than its newest version's."""

    async def submit(self, request: TrainRequest) -> EngineJob:
        """Returns a job that is on the disk, where there is a folder for it; raises Refused."""
        return await self.queue.submit(request, self._model, self._run_path)

    async def checkpoint(self) -> EngineJob:
        """Returns a new job that writes the weights as they will be then; raises Refused."""
        if self._run is None:
            raise Refused("no_checkpoints", "WINDLASS_VLLM_CHECKPOINTS is not set")
        return await self.queue.save(self._model, self._run_path)

    def counts(self) -> tuple[int, int] | None:
        """Returns the steps that have ended and begun; None before the first worker."""
        return (self._counter.ended, self._counter.begun) if self._worker.generation else None

    async def run(self) -> None:
        """Does job after job until it is cancelled, or the engine has died; no job ends it."""
        if self._is_behind:
            await self._catch_up()
        while True:
            job = self.running = await self.queue.next()
            ended = await self._ended(job)
            if self._run is not None and self._engine.errored:
                # What a job did since it saved is gone with the weights: the next engine does it.
                await self._worker.detach()
                _log.warning("the engine has died; its jobs wait for the next one of its run")
                return
            if ended.steps:
                await self._forget_prefixes()
            try:
                await self.queue.end(job, ended)
            except Refused as error:
                _log.warning("the end of %s is not on the disk: %s", job.name, error)
                job.end()
            self.running = None

    async def _catch_up(self) -> None:
        """Puts the newest version in place, which a busy machine may need several tries for.

        Without it the engine serves what its own folder has, but never a mixture of both.
        """
        for _ in range(_MOST_ATTEMPTS):
            try:
                await self._put_back(await self._worker.attached())
                return
            except Exception:
                _log.exception("the newest version was not put back; the next job tries it again")
                await self._worker.detach()
        self.is_behind = self._is_mixed

    def close(self) -> None:
        """Removes the folder in memory; a worker ends with this process."""
        self._folder.close()

    @property
    def _run_path(self) -> str:
        return str(self._run.path) if self._run else ""

    async def _ended(self, job: EngineJob) -> JobEnded:
        try:
            return await self._train(job)
        except Refused as error:
            return JobEnded(job.name, "failed", job.steps, error.reason, str(error))
        except Exception:
            _log.exception("%s failed", job.name)
            await self._hear_of_death()
            return JobEnded(job.name, "failed", job.steps, "step_failed", "see the engine's log")

    async def _hear_of_death(self) -> None:
        """Waits a moment: calls may fail before it is known that the engine has died."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DYING_SECONDS):
                while not self._engine.errored:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    async def _train(self, job: EngineJob) -> JobEnded:
        """Works until the job has ended, with another worker where one was lost."""
        if job.record.attempts >= _MOST_ATTEMPTS:
            words = f"the engine died after step {job.steps} once more"
            return JobEnded(job.name, "failed", await self._done(job), "worker_died", words)
        while True:
            if job.cancelled.is_set():
                # By an API server that was killed before it ended the job.
                job.record.steps = await self._done(job)
                return JobEnded(job.name, "cancelled", job.steps)
            process = await self._worker.attached()
            if self._is_behind:
                await self._put_back(process)
            done = await self._done(job)
            job.begin(done)
            await self.queue.keep(job)
            ended = await self._worked(job, process, done)
            if ended is not None:
                return ended
            await self._worker.detach()
            if job.cancelled.is_set():
                return JobEnded(job.name, "cancelled", job.steps)
            if not await self._done(job) or job.record.attempts >= _MOST_ATTEMPTS:
                words = f"the worker died after step {job.steps}, which is in the weights"
                return JobEnded(job.name, "failed", job.steps, "worker_died", words)
            self._is_behind = True

    async def _done(self, job: EngineJob) -> int:
        """The steps of a job that the newest version has."""
        progress = await asyncio.to_thread(self._run.progress) if self._run else None
        work = job.record.work
        if progress is None or not isinstance(work, Train) or progress.job != work.identity:
            return 0
        return progress.step

    async def _worked(self, job: EngineJob, process: TrainingProcess, done: int) -> JobEnded | None:
        """What the worker says the end is; None where it died."""
        work = job.record.work
        if isinstance(work, Train):
            work = msgspec.structs.replace(work, done=done)
        ends = asyncio.ensure_future(self._end_when_cancelled(job, process))
        try:
            async with asyncio.timeout(job.record.max_seconds):
                return await self._exchange(job.name, work, process, job)
        except TimeoutError:
            await self._worker.detach()
            words = f"the job took more than {job.record.max_seconds} seconds"
            return JobEnded(job.name, "failed", job.steps, "time_exceeded", words)
        finally:
            ends.cancel()

    async def _put_back(self, process: TrainingProcess) -> None:
        """Puts the newest version in the place of the live weights; raises Refused."""
        try:
            async with asyncio.timeout(_PUT_BACK_SECONDS):
                ended = await self._exchange(_PUT_BACK, PutBack(_PUT_BACK, self._run_path), process)
        except TimeoutError:
            await self._worker.detach()
            raise Refused("time_exceeded", "the newest version was not put back in time") from None
        if ended is None:
            await self._worker.detach()
            raise Refused("worker_died", "the worker died while it put the newest version back")
        if ended.state != "succeeded":
            raise Refused(ended.reason, ended.message)
        self._is_behind = self.is_behind = self._is_mixed = False

    async def _exchange(
        self,
        name: str,
        work: Train | Save | PutBack,
        process: TrainingProcess,
        job: EngineJob | None = None,
    ) -> JobEnded | None:
        """Sends work and hears of it up to its end; serving goes on whatever happens."""
        try:
            await process.send(work)
            async for message in process.messages():
                if isinstance(message, Ready) or message.job != name:
                    continue
                if isinstance(message, Fence):
                    self._is_mixed = self._is_mixed or name == _PUT_BACK
                    await self._fence.hold(name, process)
                elif isinstance(message, Applied):
                    await self._fence.release()
                elif isinstance(message, JobEnded):
                    return message
                elif job is not None:
                    await self._heard(job, message)
        finally:
            await self._fence.release()
        return None

    async def _heard(self, job: EngineJob, message: StepDone | VersionSaved | PassComputed) -> None:
        if isinstance(message, StepDone):
            job.step(message)
            return
        if isinstance(message, PassComputed):
            self.queue.computed(job, message.outputs)
            return
        job.saved(message)
        await self.queue.keep(job)

    async def _end_when_cancelled(self, job: EngineJob, process: TrainingProcess) -> None:
        await job.cancelled.wait()
        await process.send(Cancel(job.name))
        await asyncio.sleep(_CANCEL_SECONDS)
        await process.kill()

    async def _forget_prefixes(self) -> None:
        """Drops the keys and values of older weights; requests that run compute theirs anew."""
        with contextlib.suppress(Exception):
            if await self._engine.reset_prefix_cache(reset_running_requests=True):
                return
        _log.warning("answers may still build on keys and values of older weights")


def _run_folder(model: str, settings: EngineTrainingSettings) -> RunFolder | None:
    """The engine's own folder, which no other engine has open; raises Refused."""
    if not settings.checkpoints:
        return None
    name = settings.run or hashlib.blake2b(model.encode(), digest_size=8).hexdigest()
    folder = RunFolder(Path(settings.checkpoints) / f"run-{name}")
    # Held until this process ends.
    lock(folder.path, shared=False)
    folder.drop_drafts()
    return folder


def counts(training: EngineTraining) -> dict[str, int]:
    """Returns how many jobs wait, run and have ended."""
    states = [one.state for one in training.queue.jobs.values()]
    return {
        "queued": states.count("queued"),
        "running": states.count("running"),
        "finished": sum(one in FINAL for one in states),
    }
