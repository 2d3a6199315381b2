"""Memory of one machine as a medium: files in /dev/shm that only their owner's account reads."""

import fcntl
import os
import re
import shutil
import stat
from pathlib import Path

from windlass.weight_versions.media.folder import FolderMedium
from windlass.weight_versions.refusals import WeightsRefused

MEMORY = Path("/dev/shm")  # noqa: S108
_PREFIX, _LOCK = "windlass-weights-", "owner.lock"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class SharedMemory(FolderMedium):
    """A publisher's segment, by a name that the same publisher has after its restart.

    It goes with `close`. What an owner that was killed left behind, the next of its name removes:
    the lock went with the process.
    """

    def __init__(self, name: str):
        """Raises WeightsRefused `medium_in_use` while another owner lives."""
        self.root = segment(name)
        """The folder that readers of the same account open."""
        self._lock = _locked(self.root)
        for left in self.root.iterdir():
            if left.name != _LOCK:
                shutil.rmtree(left)
        # Whoever may write here is the owner's own account.
        super().__init__(self.root, None)

    async def close(self) -> None:
        """Removes the segment; who reads a version of it keeps its memory until they end."""
        shutil.rmtree(self.root, ignore_errors=True)
        os.close(self._lock)


def segment(name: str) -> Path:
    """The folder of a segment; raises ValueError for a name with other signs than of words."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a segment")
    return MEMORY / (_PREFIX + name)


def is_segment(root: Path) -> bool:
    """Returns True for a segment of this account, which nobody else can write to."""
    if root.parent != MEMORY or not root.name.startswith(_PREFIX):
        return False
    found = root.lstat()
    is_own = found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) == 0o700
    return stat.S_ISDIR(found.st_mode) and is_own


def _locked(root: Path) -> int:
    # Anybody may make names in /dev/shm: what is not ours is not used.
    root.mkdir(0o700, exist_ok=True)
    if not is_segment(root):
        raise WeightsRefused("medium_in_use", f"{root} belongs to somebody else.")
    lock = os.open(root / _LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise WeightsRefused("medium_in_use", f"{root} has an owner that lives.") from error
    return lock
