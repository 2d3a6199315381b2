"""The folder of mode 0700 in which an engine and its training worker meet.

Whatever is opened in it is a file of the same user that nobody else can read, and no link.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from windlass_vllm.refusal import Refused

_PREFIX = "windlass-vllm-"
_LOCK = "lock"
DRAFT = ".new"
"""End of the name of a file that is not written to its end."""


class PrivateFolder:
    """An open folder; raises Refused for one that others own or may enter."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._descriptor = os.open(path, flags)
        except OSError as error:
            raise Refused("foreign_handles", f"{path} is no folder of its own: {error}") from error
        try:
            _check(os.fstat(self._descriptor), str(path), stat.S_ISDIR)
        except Refused:
            os.close(self._descriptor)
            raise

    @contextlib.contextmanager
    def opened(self, name: str, *, new: bool = False) -> Iterator[int]:
        """Yields the descriptor of a file, made anew where asked; raises Refused."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        if new:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._descriptor)
            flags |= os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(name, flags, 0o600, dir_fd=self._descriptor)
        except OSError as error:
            raise Refused("foreign_handles", f"{name} cannot be opened: {error}") from error
        try:
            found = os.fstat(descriptor)
            _check(found, name, stat.S_ISREG)
            if found.st_nlink != 1:
                raise Refused("foreign_handles", f"{name} has another name")
            yield descriptor
        finally:
            os.close(descriptor)

    def replace(self, name: str, content: bytes) -> None:
        """Puts a file in the place of the one before, whole, and on the disk; raises Refused."""
        try:
            with (
                self.opened(f"{name}{DRAFT}", new=True) as descriptor,
                os.fdopen(descriptor, "wb", closefd=False) as file,
            ):
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            here = self._descriptor
            os.replace(f"{name}{DRAFT}", name, src_dir_fd=here, dst_dir_fd=here)
            os.fsync(self._descriptor)
        except OSError as error:
            raise Refused("not_written", f"{name} cannot be written: {error}") from error

    def read(self, name: str, most: int) -> bytes:
        """Returns what a file holds; raises Refused for one of more than so many bytes."""
        with self.opened(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise Refused("foreign_handles", f"{name} has more than {most} bytes")
        return content

    def outlived(self) -> bool:
        """Waits for the end of the folder's maker; returns whether that died, and left it."""
        with self.opened(_LOCK) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        return self.path.exists()

    def close(self) -> None:
        """Closes the folder, which stays."""
        os.close(self._descriptor)


class OwnFolder(PrivateFolder):
    """A new folder, locked while its maker lives, and removed when it is closed."""

    def __init__(self, parent: Path) -> None:
        _sweep(parent)
        path = parent / f"{_PREFIX}{secrets.token_hex(8)}"
        path.mkdir(mode=0o700)
        super().__init__(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._lock = os.open(_LOCK, flags, 0o600, dir_fd=self._descriptor)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Removes the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
        super().close()


def _sweep(parent: Path) -> None:
    """Removes folders of this user whose makers died."""
    for path in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(Refused, OSError):
            folder = PrivateFolder(path)
            try:
                with folder.opened(_LOCK) as descriptor:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                folder.close()


def _check(found: os.stat_result, name: str, is_kind: Callable[[int], bool]) -> None:
    if not is_kind(found.st_mode):
        raise Refused("foreign_handles", f"{name} is of another kind")
    if found.st_uid != os.geteuid():
        raise Refused("foreign_handles", f"{name} belongs to user {found.st_uid}")
    if found.st_mode & 0o077:
        raise Refused(
            "foreign_handles", f"{name} is open to others: {stat.filemode(found.st_mode)}"
        )
