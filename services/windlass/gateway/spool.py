"""Usage records on disk until the usage service has them: nothing is lost by a crash.

A record is written to the operating system before the response that it counts
has ended, so `kill -9` loses nothing; the loss of power may lose the last second.
Segments are locked by who writes them, so several processes share a folder.
"""

import asyncio
import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass.core import telemetry
from windlass.core.ids import new_name

log = telemetry.logger("gateway.spool")
SEGMENT_BYTES = 4 * 2**20
# Rows that wait in memory while the disk takes nothing; beyond, the oldest go, loudly.
MEMORY_ROWS = 100_000


class UsageLine(msgspec.Struct, array_like=True):
    """One record, as `windlass.api.usage.v1.UsageRecord`."""

    id: str
    at_ms: int
    organization_id: str
    project_id: str
    user_id: str
    key_id: str
    model: str
    kind: int
    input_tokens: int
    output_tokens: int
    duration_ms: int
    time_to_first_token_ms: int
    status: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(UsageLine).decode


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

    def append(self, line: UsageLine) -> None:
        """Writes one record; when the disk refuses, keeps it in memory and tries again."""
        self._unwritten.append(frame(line))
        self.arrived.set()
        self.flush()

    def flush(self) -> None:
        """Writes what waits in memory, if the disk takes it."""
        data = b"".join(self._unwritten)
        if not data:
            return
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
            log.error("usage waits in memory", rows=len(self._unwritten), error=str(error))
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

    def sealed(self) -> list[Path]:
        """Segments that nobody writes any more, the oldest first."""
        return [path for path in sorted(self._folder.glob("*.log")) if not self._is_open(path)]

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


def frame(line: UsageLine) -> bytes:
    """A record as a line that carries its own check sum."""
    body = _encode(line)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def read_segment(path: Path) -> Iterator[UsageLine]:
    """The records of a segment; a line that is torn or damaged is skipped and logged."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            check, _, body = line.rstrip(b"\n").partition(b" ")
            if line.endswith(b"\n") and check == b"%08x" % zlib.crc32(body):
                try:
                    yield _decode(body)
                    continue
                except msgspec.MsgspecError:
                    pass
            log.warning("a usage line is damaged", segment=path.name, line=number)
