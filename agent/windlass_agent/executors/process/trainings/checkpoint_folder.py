"""The folder of a checkpoint, which its engine may write: only what it should be is read."""

import contextlib
import hashlib
import os
import re
import stat
from pathlib import Path

from windlass.api.models.v1 import models_pb2

# As the plugin names what it writes in a run's folder.
_CHECKPOINT = "checkpoint"
_RUN = re.compile(r"run-[0-9a-f]{1,64}")


class UploadFailed(Exception):
    """A checkpoint that is not what was asked for, or cannot be stored; for people."""


class CheckpointFolder:
    """Files of a run's checkpoint: each of its own, of the size that is expected, and no link."""

    def __init__(self, checkpoints: Path, run: str):
        """`run` is what the engine says; raises UploadFailed for what is no name of a run."""
        if not _RUN.fullmatch(run):
            raise UploadFailed("The engine named no folder of its own.")
        self._folder = checkpoints / run

    def open(self, file: models_pb2.FileUrl) -> int:
        """A descriptor of a file that the engine wrote; raises UploadFailed."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with contextlib.ExitStack() as open_folders:
            above: int | None = None
            try:
                for name in (str(self._folder), _CHECKPOINT):
                    above = os.open(name, flags | os.O_DIRECTORY, dir_fd=above)
                    open_folders.callback(os.close, above)
            except OSError as error:
                raise UploadFailed("The engine wrote no checkpoint.") from error
            try:
                descriptor = os.open(file.path, flags, dir_fd=above)
            except OSError as error:
                raise UploadFailed(f"The engine wrote no {file.path}.") from error
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size != file.bytes:
            os.close(descriptor)
            raise UploadFailed(f"{file.path} is not of the size that the model's file has.")
        return descriptor

    def digest(self, file: models_pb2.FileUrl) -> bytes:
        """The SHA-256 of a file; raises UploadFailed."""
        with os.fdopen(self.open(file), "rb") as opened:
            return hashlib.file_digest(opened, "sha256").digest()
