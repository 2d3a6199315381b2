"""Jobs on a disk: a file for each, whole or not at all."""

import logging
import time

import msgspec

from windlass_vllm.messages import JobEnded, JobState, Save, Train
from windlass_vllm.refusal import Refused
from windlass_vllm.run_folder import JOBS, RunFolder
from windlass_vllm.weights.private_folder import DRAFT

_MOST_BYTES = 64 * 2**20
_log = logging.getLogger("vllm.windlass_vllm")


class JobRecord(msgspec.Struct, kw_only=True):
    """All of a job that outlives the API server."""

    name: str
    number: int
    work: Train | Save
    total: int
    max_seconds: int
    digest: bytes = b""
    created: float = msgspec.field(default_factory=time.time)
    state: JobState = "queued"
    steps: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    saved_step: int = 0
    # Since a step was saved last.
    attempts: int = 0
    is_cancelled: bool = False
    ended: JobEnded | None = None


class JobFiles:
    """The jobs of a run."""

    def __init__(self, run: RunFolder) -> None:
        self._folder = RunFolder(run.path / JOBS)

    def read(self) -> list[JobRecord]:
        """Returns all jobs in the order of their numbers; one that cannot be read is left out."""
        found = []
        for name in sorted(path.name for path in self._folder.path.iterdir()):
            if name.endswith(DRAFT):
                continue
            try:
                content = self._folder.read(name, _MOST_BYTES)
                found.append(msgspec.msgpack.decode(content, type=JobRecord))
            except (Refused, msgspec.MsgspecError) as error:
                _log.warning("the job in %s cannot be read: %s", name, error)
        return sorted(found, key=lambda one: one.number)

    def write(self, name: str, content: bytes) -> None:
        """Returns when an encoded record is on the disk; raises Refused."""
        self._folder.replace(name, content)

    def remove(self, name: str) -> None:
        """Removes a job if it is there."""
        (self._folder.path / name).unlink(missing_ok=True)
