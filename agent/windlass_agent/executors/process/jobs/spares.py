"""Spare runners, each with a trainer that has already imported its libraries.

A spare has walls, a folder, a user and a control group of its own, and serves one attempt or
none. It waits for a token on a pipe, whose other end this agent alone holds: an agent that dies,
however it dies, ends its spares. One that no attempt takes in time is ended, and so is one whose
memory is needed; one whose libraries were replaced on disk is not given away.
"""

import asyncio
import contextlib
import math
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import psutil

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.confinement import WorkloadLimits, libraries_version
from windlass.core import telemetry
from windlass_agent.executors import world
from windlass_agent.executors.process import processes
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.jobs.runners import Runners
from windlass_agent.executors.process.processes import Child
from windlass_agent.folders import private_folder
from windlass_agent.memory import default_limits, memory_limit

# What backends of other frameworks start is another program.
FRAMEWORK = "trl"
# A spare takes up to 0.9 GiB, and a job comes on top of it.
ROOM_BYTES = 4 * 2**30
# With less than this free, a spare's memory is of more use to what runs.
PRESSURE_BYTES = 2 * 2**30
LOOK_SECONDS = 10.0
_ANY = jobs_pb2.Resources()

log = telemetry.logger("spares")


@dataclass(frozen=True)
class SpareRunner:
    """A waiting runner; `name` is that of its confinement."""

    name: str
    folder: Path
    process: Child
    started: float
    writer: BinaryIO
    # By the monotonic clock.
    made: float
    libraries: int

    def hand_over(self, token: str) -> None:
        """Gives the spare an attempt by its token; raises OSError if the spare has ended."""
        with self.writer:
            self.writer.write(token.encode())


class Spares:
    """Keeps `count` runners ready once a job that fits has run here; 0 keeps none.

    One that waited for `idle_seconds` is ended, unless those are 0.
    """

    def __init__(
        self, folder: Path, runners: Runners, *, count: int, idle_seconds: float = 0.0
    ) -> None:
        self._folder = folder
        self._runners = runners
        self._count = count
        self._idle_seconds = idle_seconds or math.inf
        self._waiting: list[SpareRunner] = []
        self._preparing: asyncio.Task[None] | None = None
        self._retiring: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    def folder(self, name: str) -> Path:
        """The folder of the spare of that name, before and after it is taken."""
        return self._folder / name

    async def take(self, workload: pb.Workload) -> SpareRunner | None:
        """Takes a spare that fits a job and sets its limits; None if there is none."""
        if not _fits(workload):
            return None
        limits = default_limits(workload.resources.memory_bytes)
        while self._waiting:
            spare = self._waiting.pop(0)
            if spare.process.ended() or spare.libraries != libraries_version():
                await asyncio.to_thread(self.drop, spare)
            elif await asyncio.to_thread(self._limit, spare, limits):
                return spare
            else:
                self._waiting.append(spare)
                return None
        return None

    def _limit(self, spare: SpareRunner, limits: WorkloadLimits) -> bool:
        # Without a control group it has those that it was made with.
        return self._runners.confinement.limit(spare.name, limits) or limits == default_limits()

    def renew(self, workload: pb.Workload) -> None:
        """Starts missing spares in the background, after a fitting job has started."""
        idle = not self._closed.is_set() and self._preparing is None
        if idle and len(self._waiting) < self._count and _fits(workload):
            self._preparing = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        try:
            while len(self._waiting) < self._count and _has_room():
                self._waiting.append(await asyncio.to_thread(self._start))
                if self._retiring is None:
                    self._retiring = asyncio.create_task(self._retire())
        except OSError as error:
            log.warning("spare_trainer_failed", reason=str(error))
        finally:
            self._preparing = None

    async def _retire(self) -> None:
        """Ends spares that are no longer worth their memory, while there are any."""
        try:
            while self._waiting and not self._closed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(LOOK_SECONDS, self._idle_seconds)):
                        await self._closed.wait()
                for spare in [one for one in self._waiting if self._is_over(one)]:
                    # An attempt may have taken it while another was dropped.
                    if spare in self._waiting:
                        self._waiting.remove(spare)
                        await asyncio.to_thread(self.drop, spare)
        finally:
            self._retiring = None

    def _is_over(self, spare: SpareRunner) -> bool:
        return (
            spare.process.ended()
            or time.monotonic() - spare.made >= self._idle_seconds
            or psutil.virtual_memory().available < PRESSURE_BYTES
        )

    def _start(self) -> SpareRunner:
        name = f"spare-{secrets.token_hex(8)}"
        folder = private_folder(self._folder) / name
        # Looked at first: what is replaced while it imports makes it old.
        libraries = libraries_version()
        reader, writer = os.pipe()
        try:
            process = self._runners.start(
                name,
                folder,
                resources=_ANY,
                allotment=Allotment(),
                token=reader,
                flags=("--spare",),
            )
        except BaseException:
            os.close(writer)
            self._clear(name)
            raise
        finally:
            os.close(reader)
        return SpareRunner(
            name,
            folder,
            process,
            started=processes.start_time(process.pid),
            writer=os.fdopen(writer, "wb", buffering=0),
            made=time.monotonic(),
            libraries=libraries,
        )

    def drop(self, spare: SpareRunner) -> None:
        """Ends a spare and removes its files."""
        spare.writer.close()
        processes.kill_session(spare.process.pid, spare.started)
        spare.process.reap()
        self._clear(spare.name)

    def adopt(self, taken: set[str]) -> None:
        """Ends spares of an earlier agent process, except those that attempts have taken."""
        for folder in self._folder.glob("spare-*"):
            if folder.name in taken:
                continue
            if left := processes.find(0, 0.0, argument=str(folder)):
                processes.kill_session(left.pid, processes.start_time(left.pid))
            self._clear(folder.name)

    async def close(self) -> None:
        """Ends every spare."""
        self._closed.set()
        for task in (self._preparing, self._retiring):
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)
        for spare in self._waiting:
            await asyncio.to_thread(self.drop, spare)
        self._waiting.clear()

    def _clear(self, name: str) -> None:
        shutil.rmtree(self.folder(name), ignore_errors=True)
        self._runners.confinement.forget(name)


def _fits(workload: pb.Workload) -> bool:
    """Returns True if a job runs as one process of the framework that spares have loaded.

    It has no GPUs nor CPUs of its own: those are told to a runner, and shown within its walls,
    when it starts.
    """
    job, resources = workload.job, workload.resources
    alone = world.alone(resources) == world.alone(_ANY)
    shared = not resources.gpus and not resources.cpus
    return job.framework == FRAMEWORK and job.num_nodes <= 1 and alone and shared


def _has_room() -> bool:
    return min(psutil.virtual_memory().available, memory_limit()) >= ROOM_BYTES
