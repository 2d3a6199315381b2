"""The folder of one engine on a disk: its checkpoint, what goes with it, and its jobs.

What goes with a version is written before the version, and what goes with older ones is removed
after it. So the newest version of the checkpoint decides what of it counts.
"""

import contextlib
import shutil
from pathlib import Path

import msgspec

from windlass_vllm.checkpoints.log import read_log
from windlass_vllm.refusal import Refused
from windlass_vllm.weights.private_folder import DRAFT, PrivateFolder

JOBS = "jobs"
_CHECKPOINT = "checkpoint"
_PROGRESS, _STATE = "progress-", "optimizer-"
_MOST_BYTES = 65536


class SavedProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words on a version: all steps of the engine, and the job that has made some of them."""

    version: str
    counted: int
    job: str = ""
    step: int = 0


class RunFolder(PrivateFolder):
    """A folder of mode 0700 that is made if it is not there; raises Refused for one of others."""

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Refused("not_written", f"{path} cannot be made: {error}") from error
        super().__init__(path)

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint, which is there once a version was saved."""
        return self.path / _CHECKPOINT

    def state(self, version: str) -> Path:
        """Returns where the optimizer's state of a version is."""
        return self.path / f"{_STATE}{version}"

    def write_progress(self, progress: SavedProgress) -> None:
        """Writes the words on a version that is about to be written."""
        self.replace(f"{_PROGRESS}{progress.version}", msgspec.json.encode(progress))

    def progress(self) -> SavedProgress | None:
        """Returns the words on the newest version; None before the first."""
        try:
            version = read_log(self.checkpoint).version
            content = self.read(f"{_PROGRESS}{version}", _MOST_BYTES)
            return msgspec.json.decode(content, type=SavedProgress)
        except (Refused, msgspec.MsgspecError):
            return None

    def drop_drafts(self) -> None:
        """Removes what killed processes have not written to its end; none may write meanwhile."""
        with contextlib.suppress(OSError):
            for path in [*self.path.iterdir(), *(self.path / JOBS).glob(f"*{DRAFT}")]:
                if path.name.startswith(f".{_CHECKPOINT}.") and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name.endswith(DRAFT):
                    path.unlink()

    def drop_older(self, version: str) -> None:
        """Removes what goes with other versions than the newest."""
        kept = {f"{_PROGRESS}{version}", f"{_STATE}{version}"}
        for path in self.path.iterdir():
            named = path.name.removeprefix(".").startswith((_PROGRESS, _STATE))
            if named and path.name not in kept:
                with contextlib.suppress(OSError):
                    path.unlink()
