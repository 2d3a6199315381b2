"""Records of attempts that survive a restart of the agent: one file of mode 0600 each."""

import contextlib
import shutil
from pathlib import Path

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.ids import is_identifier
from windlass_agent.executors.exits import Exit, read_exit
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.folders import private_folder, write_private


class AttemptRecord(msgspec.Struct, kw_only=True):
    """Record of one attempt, written before its process starts, afterwards, and at its end."""

    # Serialized `Workload`.
    workload: bytes
    token: str
    pid: int = 0
    started: float = 0.0
    # Folder of the spare that it took, whose walls are around it.
    spare: str = ""
    # A terminal phase once it has ended.
    phase: int = 0
    reason: str = ""
    message: str = ""
    # What it has of the machine, from before its process starts.
    allotment: Allotment = Allotment()
    # Whether its log and its result have reached the control plane.
    delivered: bool = False

    def decoded(self) -> pb.Workload:
        """The workload as it was when the attempt began."""
        return pb.Workload.FromString(self.workload)


class Records:
    """The folder of all attempts: `<id>-<attempt>.json`, and a working folder beside it."""

    def __init__(self, folder: Path):
        self._folder = private_folder(folder.resolve())

    def name(self, workload: pb.Workload) -> str:
        """The attempt's name; raises ValueError for an id that could leave the folder."""
        if not is_identifier(workload.id):
            raise ValueError(f"{workload.id!r} is not an identifier")
        return f"{workload.id}-{workload.job.attempt}"

    def workdir(self, name: str) -> Path:
        """The attempt's folder, or a link to it."""
        return self._folder / name

    def log(self, name: str) -> Path:
        """The output of its processes."""
        return self.workdir(name) / "log"

    def save(self, name: str, record: AttemptRecord) -> None:
        """Replaces the record durably."""
        write_private(self._folder / f"{name}.json", msgspec.json.encode(record))

    def load(self) -> dict[str, AttemptRecord]:
        """Every record that can be read; one that cannot was never complete."""
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(msgspec.DecodeError):
                found[path.stem] = msgspec.json.decode(path.read_bytes(), type=AttemptRecord)
        return found

    def exit(self, name: str) -> Exit | None:
        """The runner's exit report, if there is one."""
        try:
            return read_exit((self.workdir(name) / "exit.json").read_bytes())
        except FileNotFoundError:
            return None

    def clear(self, name: str) -> None:
        """Removes the working folder; the record stays."""
        workdir = self.workdir(name)
        shutil.rmtree(workdir.resolve(), ignore_errors=True)
        if workdir.is_symlink():
            workdir.unlink()

    def remove(self, name: str) -> None:
        """Deletes an attempt's files, the record last."""
        self.clear(name)
        (self._folder / f"{name}.json").unlink(missing_ok=True)
