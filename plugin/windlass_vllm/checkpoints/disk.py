"""Every write to a checkpoint's folder, so that tests can crash between and within them."""

import errno
import fcntl
import os
from pathlib import Path
from types import TracebackType

from windlass_vllm.refusal import Refused

_MODE = 0o600


class Disk:
    """Files below one folder, by relative names. Nothing is on the disk before it was synced.

    Refused is raised with `disk_full` or `not_written`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, int] = {}

    def __enter__(self) -> "Disk":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, name: str, offset: int, content: bytes | memoryview) -> None:
        """Writes into a file, which is made if it is not there."""
        try:
            descriptor, rest = self._descriptor(name), memoryview(content)
            while rest:
                written = os.pwrite(descriptor, rest, offset)
                offset, rest = offset + written, rest[written:]
        except OSError as error:
            raise _refused(name, error) from error

    def truncate(self, name: str, size: int) -> None:
        """Cuts a file off."""
        try:
            os.ftruncate(self._descriptor(name), size)
        except OSError as error:
            raise _refused(name, error) from error

    def sync(self, name: str) -> None:
        """Returns when all that was written to a file is on the disk."""
        try:
            os.fsync(self._descriptor(name))
        except OSError as error:
            raise _refused(name, error) from error

    def sync_folder(self, name: str = ".") -> None:
        """Returns when the names in a folder are on the disk."""
        try:
            descriptor = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _refused(name, error) from error

    def rename(self, name: str, target: str) -> None:
        """Puts a file in another's place, at once."""
        self._forget(name, target)
        try:
            (self.folder / name).rename(self.folder / target)
        except OSError as error:
            raise _refused(name, error) from error

    def remove(self, name: str) -> None:
        """Removes a file if it is there."""
        self._forget(name)
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise _refused(name, error) from error

    def close(self) -> None:
        """Closes what is open."""
        self._forget(*self._open)

    def _descriptor(self, name: str) -> int:
        if name not in self._open:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._open[name] = os.open(self.folder / name, flags, _MODE)
        return self._open[name]

    def _forget(self, *names: str) -> None:
        for name in names:
            if (descriptor := self._open.pop(name, None)) is not None:
                os.close(descriptor)


def lock(folder: Path, *, shared: bool) -> int:
    """Returns a descriptor that holds the folder until it is closed; raises Refused.

    Readers share it, a writer has it alone.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError as error:
        raise Refused("no_checkpoint", f"{folder} is no folder: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Refused("in_use", f"another process has {folder} open") from error
    return descriptor


def _refused(name: str, error: OSError) -> Refused:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Refused("disk_full" if full else "not_written", f"{name}: {error.strerror or error}")
