"""Lines kept on disk until they are acknowledged, so that no crash loses them.

A line is written to the operating system at once, so `kill -9` loses nothing. Segments are
locked by who writes them, so several processes share a folder, and what a dead process left is
anybody's to send.
"""

import asyncio
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from windlass.core import telemetry
from windlass.core.ids import new_name

log = telemetry.logger("spool")
SEGMENT_BYTES = 4 * 2**20
# Rows that wait in memory while the disk takes nothing; beyond, the oldest go, loudly.
MEMORY_ROWS = 100_000


class Spool:
    """Append-only segments in a folder of mode 0700."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._descriptor = -1
        self._path = folder
        self._size = 0
        self._unwritten: list[bytes] = []
        self.arrived = asyncio.Event()

    def append(self, body: bytes) -> None:
        """Writes one line without its end; when the disk refuses, keeps it and tries again."""
        self._unwritten.append(frame(body))
        self.arrived.set()
        self.flush()

    def flush(self) -> None:
        """Writes what waits in memory, if the disk takes it."""
        if not self._unwritten:
            return
        data = b"".join(self._unwritten)
        try:
            if self._descriptor < 0:
                self._open()
            start = self._size
            written = os.write(self._descriptor, data)
            if written < len(data):
                # A torn line would swallow its successor.
                os.ftruncate(self._descriptor, start)
                raise OSError("short write")
        except OSError as error:
            rows = len(self._unwritten)
            log.error("spool_write_failed", spool=self._folder.name, rows=rows, error=str(error))
            del self._unwritten[:-MEMORY_ROWS]
            return
        self._unwritten.clear()
        self._size += len(data)
        if self._size >= self._segment_bytes:
            self.seal()

    def _open(self) -> None:
        self._path = self._folder / f"{time.time_ns():020d}-{new_name('', length=8)}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        # Locked before it has its name, or another process might take it for a sealed one.
        unnamed = self._path.with_suffix(".new")
        self._descriptor = os.open(unnamed, flags, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        unnamed.rename(self._path)
        self._size = 0

    def seal(self) -> None:
        """Ends the present segment, so that it may be sent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    async def synced(self) -> None:
        """Returns when what was appended outlives this process, which it does at once."""

    def sealed(self) -> list[Path]:
        """Segments that are complete, oldest first."""
        return [path for path in sorted(self._folder.glob("*.log")) if not self._is_open(path)]

    def age_seconds(self) -> float:
        """Seconds since the oldest line that is still here was written; 0 without one."""
        written = (int(path.stem.partition("-")[0]) for path in self._folder.glob("*.log"))
        oldest = min(written, default=0)
        return max(0.0, (time.time_ns() - oldest) / 1e9) if oldest else 0.0

    def _is_open(self, path: Path) -> bool:
        if self._descriptor >= 0 and path == self._path:
            return True
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


class DurableSpool(Spool):
    """A spool that reports when its lines are synced to disk."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES):
        super().__init__(folder, segment_bytes=segment_bytes)
        self._appended = 0
        self._durable = 0
        # Ended but not yet on the medium; their locks keep them from being sent.
        self._ending: list[int] = []
        self._syncing: asyncio.Task[None] | None = None
        # Segments made, and how many of those the folder on the medium has.
        self._made = 0
        self._named = 0

    def _open(self) -> None:
        super()._open()
        self._made += 1

    def append(self, body: bytes) -> None:
        """See Spool.append."""
        self._appended += 1
        super().append(body)

    def seal(self) -> None:
        """See Spool.seal; the segment may be sent after the next `synced`."""
        if self._descriptor >= 0:
            self._ending.append(self._descriptor)
            self._descriptor = -1

    async def synced(self) -> None:
        """Return when all that was appended before is on the medium; many wait for one sync."""
        wanted = self._appended
        while self._durable < wanted or self._ending:
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._sync())
            await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        reached, made, ending = self._appended, self._made, self._ending
        self._ending = []
        folder = self._folder if self._named < made else None
        # Its own copy: the segment may be sealed meanwhile.
        present = [os.dup(self._descriptor)] if self._descriptor >= 0 else []
        try:
            await asyncio.to_thread(_sync, [*ending, *present], folder)
            self._named = made
        except OSError as error:
            log.error("spool_sync_failed", error=str(error))
        finally:
            self._durable, self._syncing = reached, None


def _sync(descriptors: list[int], folder: Path | None) -> None:
    """Syncs and closes files, and then the folder that has new ones."""
    try:
        for descriptor in descriptors:
            os.fdatasync(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if folder is not None:
        entry = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)


def frame(body: bytes) -> bytes:
    """A body without line ends as a line that carries its own check sum."""
    return b"%08x %b\n" % (zlib.crc32(body), body)


def read_lines(path: Path) -> Iterator[bytes]:
    """The bodies of a segment; a line that is torn or damaged is skipped and logged."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            check, _, body = line.rstrip(b"\n").partition(b" ")
            if line.endswith(b"\n") and check == b"%08x" % zlib.crc32(body):
                yield body
            else:
                log.warning("spool_line_damaged", segment=path.name, line=number)
