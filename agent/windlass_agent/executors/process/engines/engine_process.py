"""The process of one engine: started or found again, its log, and its end."""

import asyncio
import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import Confinement, Walls, python_paths
from windlass.confinement.environment import child_environment
from windlass_agent.engines.port import EngineKind, EngineSpec
from windlass_agent.executors.process import processes
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.processes import Process
from windlass_agent.folders import private_folder, write_private
from windlass_agent.machine.path_redaction import redact_paths
from windlass_agent.machine.program_output import last_error, tail

MAX_LOG_BYTES = 32 * 2**20
TERMINATE_SECONDS = 5.0
# How long what an engine has learned waits on the disk for its next process.
KEPT_SECONDS = 7 * 86_400.0
_POLL_SECONDS = 0.05
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


class EngineRecord(msgspec.Struct, kw_only=True):
    """Record that survives a restart of the agent: a workload and its process, one file each."""

    # Serialized `Workload`.
    workload: bytes
    # An argument that its command line alone has.
    argument: str
    pid: int = 0
    started: float = 0.0
    # What it has of the machine.
    allotment: Allotment = Allotment()
    # Of one that may be trained: what its routes of training ask for.
    training_key: str = ""


@dataclass(frozen=True)
class EngineFiles:
    """Paths of one engine's files."""

    record: Path
    log: Path
    # In a folder of its own, which is all that the engine can write.
    socket: Path
    # What it may load later on: adapters, and versions of its weights.
    adapters: Path
    weights: Path

    @property
    def name(self) -> str:
        """The workload's on this machine."""
        return self.record.stem

    @property
    def checkpoints(self) -> Path:
        """Folder of the weights that a trained one keeps, from its first process to its last."""
        return self.record.with_suffix(".checkpoints")

    def prepare(self) -> None:
        """Recreates the engine's folders."""
        self.remove_folders()
        for folder in (self.socket.parent, self.adapters, self.weights):
            private_folder(folder)

    def rest(self) -> None:
        """Removes what the engine's next process makes anew; what it has learned stays."""
        self.remove_folders()
        self.log.unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes all files of the engine."""
        self.remove_folders()
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        for path in (self.record, self.log):
            path.unlink(missing_ok=True)

    def remove_folders(self) -> None:
        """Removes the engine's socket, and what it could load."""
        for folder in (self.socket.parent, self.adapters, self.weights):
            shutil.rmtree(folder, ignore_errors=True)


def has_learned(record: EngineRecord, files: EngineFiles) -> bool:
    """Returns True if an engine that has ended left weights that its next process puts back."""
    if (
        not pb.Workload.FromString(record.workload).engine.training
        or not files.checkpoints.exists()
    ):
        return False
    return time.time() - files.record.stat().st_mtime < KEPT_SECONDS


def read_record(path: Path) -> EngineRecord | None:
    """A record; None for one that was never complete."""
    with contextlib.suppress(msgspec.DecodeError, OSError):
        return msgspec.json.decode(path.read_bytes(), type=EngineRecord)
    return None


class EngineProcess:
    """A process that runs, in a session of its own."""

    def __init__(
        self, process: Process, started: float, files: EngineFiles, training_key: str = ""
    ):
        self.training_key = training_key
        self._process = process
        self._started = started
        self._files = files

    @classmethod
    def start(
        cls,
        engine: EngineKind,
        spec: EngineSpec,
        *,
        files: EngineFiles,
        workload: bytes,
        allotment: Allotment,
        confinement: Confinement,
    ) -> "EngineProcess":
        """Starts the engine, recording it before and after; raises OSError."""
        command = engine.command(spec)
        address = str(files.socket)
        argument = next(word for word in command if address in word)
        key = spec.training.key if spec.training else ""
        record = EngineRecord(
            workload=workload, argument=argument, allotment=allotment, training_key=key
        )
        write_private(files.record, msgspec.json.encode(record))
        files.prepare()
        files.log.unlink(missing_ok=True)
        folders = [one for one in (spec.model_dir, spec.draft_dir) if one]
        for folder in folders:
            confinement.show(folder)
        confinement.show(files.adapters)
        own = (files.socket.parent, *([files.checkpoints] if spec.training else []))
        if spec.training:
            files.checkpoints.mkdir(mode=0o700, exist_ok=True)
        confinement.show(files.weights)
        confinement.give(files.name, *own)
        walls = Walls(
            readable=(*python_paths(), *engine.programs(), *folders, files.adapters, files.weights),
            writable=own,
            devices=allotment.nodes(),
        )
        limits = allotment.limits()
        with confinement.launch(command, walls, name=files.name, limits=limits) as launch:
            process = processes.start(
                launch,
                # Where nothing lies that a plain name could mean.
                folder=files.adapters,
                log=files.log,
                environment=child_environment(confined=confinement.confines)
                | _OFFLINE
                | engine.environment(spec)
                | allotment.environment(),
                confined=confinement.confines,
            )
        record.pid, record.started = process.pid, processes.start_time(process.pid)
        write_private(files.record, msgspec.json.encode(record))
        return cls(process, record.started, files, key)

    @classmethod
    def find(cls, record: EngineRecord, files: EngineFiles) -> "EngineProcess | None":
        """The process that an earlier life of the agent started, if it lives."""
        found = processes.find(record.pid, record.started, argument=record.argument)
        if found is None:
            return None
        # An agent that died while starting it has not noted when.
        started = record.started or processes.start_time(found.pid)
        return cls(found, started, files, record.training_key)

    def ended(self) -> bool:
        """Returns True if the process has ended."""
        return self._process.ended()

    def refused(self) -> bool:
        """Returns True if the engine refused to start, so that a restart would fail too."""
        code = self._process.code()
        return code is not None and code > 0

    def last_words(self) -> str:
        """Describes to tenants how the engine ended, with the error that its log ends with."""
        if not self.ended():
            return "The engine stopped answering."
        code = self._process.code()
        how = "" if code is None else f" by signal {-code}" if code < 0 else f" with code {code}"
        error = last_error(redact_paths(self.output(), self._files.log.parent))
        return f"The engine ended{how}{f': {error}' if error else '.'}"

    def output(self) -> str:
        """Returns the end of the engine's log as it was written, for the machine's operator."""
        return tail(self._files.log)

    def bound_log(self) -> None:
        """Empties a log that has grown too long."""
        with contextlib.suppress(OSError):
            if self._files.log.stat().st_size > MAX_LOG_BYTES:
                os.truncate(self._files.log, 0)

    async def end(self, *, graceful: bool = False) -> None:
        """Kills every process of the engine's session."""
        if graceful and not self._process.ended():
            processes.terminate(self._process)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TERMINATE_SECONDS):
                    await self._wait()
        await asyncio.to_thread(processes.kill_session, self._process.pid, self._started)
        await self._wait()

    async def _wait(self) -> None:
        # An adopted process is not our child, so nothing can announce its end.
        while not self._process.ended():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
