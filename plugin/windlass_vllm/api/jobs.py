"""Jobs of one engine: a bounded queue, one at a time, each once for its idempotency key."""

import asyncio
import hashlib
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from windlass_vllm.api.job_files import JobFiles, JobRecord
from windlass_vllm.api.requests import TrainRequest, job_name
from windlass_vllm.messages import JobEnded, JobState, Save, StepDone, Train, VersionSaved
from windlass_vllm.refusal import Refused

MOST_WAITING = 16
_MOST_FINISHED = 256
_STEPS_KEPT = 1000
_MOST_OUTPUTS = 8
_SAVE_SECONDS = 3600
FINAL: frozenset[JobState] = frozenset({"succeeded", "failed", "cancelled"})


class EngineJob:
    """One job, of training or of a checkpoint, and what became of it."""

    def __init__(self, record: JobRecord) -> None:
        self.record = record
        self.measured: StepDone | None = None
        # Of a forward pass; in memory alone, since it can be computed again.
        self.outputs: bytes | None = None
        self.cancelled = asyncio.Event()
        if record.is_cancelled:
            self.cancelled.set()
        self.recent: deque[StepDone] = deque(maxlen=_STEPS_KEPT)
        self._changed = asyncio.Event()

    @property
    def name(self) -> str:
        """The name by which callers know the job."""
        return self.record.name

    @property
    def state(self) -> JobState:
        """The state of the job."""
        return self.record.state

    @property
    def steps(self) -> int:
        """Steps that were done."""
        return self.record.steps

    def begin(self, done: int) -> None:
        """Marks the job as running, with so many steps in the weights."""
        self.record.state, self.record.steps = "running", done
        self.record.attempts += 1
        self._tell()

    def step(self, stepped: StepDone) -> None:
        """Takes a step that was done."""
        record = self.record
        record.steps, record.last_loss = stepped.step, stepped.loss
        record.first_loss = stepped.loss if record.first_loss is None else record.first_loss
        if stepped.held_out_loss is not None:
            self.measured = stepped
        self.recent.append(stepped)
        self._tell()

    def saved(self, saved: VersionSaved) -> None:
        """Takes a version that is on the disk."""
        self.record.saved_step, self.record.attempts = saved.step, 0

    def end(self) -> None:
        """Tells whoever follows that the record says the end."""
        self._tell()

    def described(self) -> dict[str, Any]:
        """Returns what a caller sees."""
        record, ended = self.record, self.record.ended
        found: dict[str, Any] = {
            "job_id": record.name,
            "status": record.state,
            "created": int(record.created),
        }
        if isinstance(record.work, Save):
            version = ended.version or None if ended else None
            found |= {"folder": f"{record.work.run}/checkpoint", "version": version}
        else:
            losses = {"first_loss": record.first_loss, "last_loss": record.last_loss}
            counts = {"steps": record.steps, "total_steps": record.total}
            found |= {"mode": record.work.mode} | counts | losses
            found |= {"saved_step": record.saved_step}
        if one := self.measured:
            words = {"step": one.step, "held_out_loss": one.held_out_loss, "kl": one.kl}
            found |= {"guard": words}
        if ended and ended.kept_steps is not None:
            found |= {"kept_steps": ended.kept_steps}
        if ended and ended.reason:
            found |= {"reason": ended.reason, "message": ended.message}
        return found

    async def follow(self) -> AsyncIterator[StepDone]:
        """Yields steps from the oldest that is kept until the job ends.

        Steps that are done again after the worker was lost are yielded once.
        """
        seen = 0
        while True:
            changed, is_final = self._changed, self.state in FINAL
            for one in [one for one in self.recent if one.step > seen]:
                seen = one.step
                yield one
            if is_final:
                return
            if self.state not in FINAL:
                await changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class JobQueue:
    """The jobs of an engine, each on the disk before anybody hears of it where there are files."""

    def __init__(self, files: JobFiles | None = None) -> None:
        self.jobs: dict[str, EngineJob] = {}
        self._files, self._number = files, 0
        self._adding = asyncio.Lock()
        self._waiting: asyncio.Queue[EngineJob] = asyncio.Queue()
        for record in files.read() if files else ():
            self._number = max(self._number, record.number)
            if record.state == "running":
                record.state = "queued"
            self.jobs[record.name] = job = EngineJob(record)
            if record.state == "queued":
                self._waiting.put_nowait(job)

    async def submit(self, request: TrainRequest, model: str = "", run: str = "") -> EngineJob:
        """Returns a new job, or the one of the same idempotency key; raises Refused."""
        name = job_name(request.idempotency_key)
        digest = hashlib.blake2b(msgspec.msgpack.encode(request)).digest()
        async with self._adding:
            if name in self.jobs:
                if self.jobs[name].record.digest != digest:
                    message = "idempotency_key: it belongs to a job of another request"
                    raise Refused("idempotency_conflict", message)
                return self.jobs[name]
            work = request.work(name, self._number + 1, model, run)
            return await self._add(name, work, request.steps, request.max_seconds, digest)

    async def save(self, model: str, run: str) -> EngineJob:
        """Returns a new job that writes the weights as a version of a run; raises Refused."""
        name = f"checkpoint-{secrets.token_hex(12)}"
        async with self._adding:
            return await self._add(name, Save(name, model, run), 0, _SAVE_SECONDS)

    async def _add(
        self, name: str, work: Train | Save, total: int, max_seconds: int, digest: bytes = b""
    ) -> EngineJob:
        if sum(one.state == "queued" for one in self.jobs.values()) >= MOST_WAITING:
            raise Refused("queue_full", f"{MOST_WAITING} jobs wait already")
        await self._forget()
        number = self._number + 1
        record = JobRecord(
            name=name,
            number=number,
            work=work,
            total=total,
            max_seconds=max_seconds,
            digest=digest,
        )
        job = EngineJob(record)
        await self.keep(job)
        self._number, self.jobs[name] = number, job
        self._waiting.put_nowait(job)
        return job

    def computed(self, job: EngineJob, outputs: bytes) -> None:
        """Takes what a forward pass computed; those of the newest jobs alone are kept."""
        job.outputs = outputs
        having = [one for one in self.jobs.values() if one.outputs is not None]
        for one in having[:-_MOST_OUTPUTS]:
            one.outputs = None

    def get(self, name: str) -> EngineJob:
        """Returns a job; raises Refused for one that is not known."""
        if name not in self.jobs:
            raise Refused("job_unknown", "job: no such job")
        return self.jobs[name]

    async def cancel(self, name: str) -> EngineJob:
        """Ends a job that waits, and asks one that runs to end; raises Refused."""
        job = self.get(name)
        if job.state == "queued":
            await self.end(job, JobEnded(name, "cancelled", 0))
        job.cancelled.set()
        if job.state == "running":
            job.record.is_cancelled = True
            await self.keep(job)
        return job

    async def end(self, job: EngineJob, ended: JobEnded) -> None:
        """Takes a job's end; samples and datums are kept no longer."""
        record = job.record
        record.state, record.ended = ended.state, ended
        # The step that trips a guard is done, and no message of its own says so.
        record.steps = max(record.steps, ended.steps)
        if isinstance(record.work, Train):
            record.work = msgspec.structs.replace(record.work, samples=(), datums=(), guard=None)
        await self.keep(job)
        job.end()

    async def next(self) -> EngineJob:
        """Waits for the next job that is still to be done."""
        while (job := await self._waiting.get()).state != "queued":
            pass
        return job

    async def keep(self, job: EngineJob) -> None:
        """Returns when a job is on the disk as it is now; raises Refused."""
        if self._files is not None:
            content = msgspec.msgpack.encode(job.record)
            await asyncio.to_thread(self._files.write, job.name, content)

    async def _forget(self) -> None:
        finished = [name for name, one in self.jobs.items() if one.state in FINAL]
        for name in finished[: max(0, len(finished) - _MOST_FINISHED + 1)]:
            del self.jobs[name]
            if self._files is not None:
                await asyncio.to_thread(self._files.remove, name)
