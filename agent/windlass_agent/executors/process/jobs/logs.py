"""Carries a growing log file to the control plane, each byte once, without the machine's paths.

The file itself stays as it was written, for the machine's operator.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from windlass.core.backoff import Backoff
from windlass_agent.machine.path_redaction import redact_paths
from windlass_agent.retrying import is_final

CHUNK_BYTES = 256 * 1024
POLL_SECONDS = 1.0
_LINE_ENDS = (b"\n", b"\r")

# Takes bytes that begin at an offset; answers how many bytes are stored in all.
Append = Callable[[int, bytes], Awaitable[int]]


class RedactedLog:
    """A log as its tenant reads it: offsets are those of the redacted text.

    It is redacted line by line from the beginning, so that every life of the agent counts alike.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rewind()

    def _rewind(self) -> None:
        self._position = self._offset = 0
        self._ready = b""

    def read(self, offset: int, *, whole: bool) -> bytes:
        """Returns what follows `offset`: lines that are complete, or all there is if `whole`."""
        if offset < self._offset:
            self._rewind()
        while True:
            passed = min(offset - self._offset, len(self._ready))
            self._ready, self._offset = self._ready[passed:], self._offset + passed
            if len(self._ready) >= CHUNK_BYTES or not (fresh := self._next(whole=whole)):
                return self._ready[:CHUNK_BYTES]
            self._ready += fresh

    def _next(self, *, whole: bool) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                raw = file.read(CHUNK_BYTES)
        except FileNotFoundError:
            return b""
        end = max(raw.rfind(one) for one in _LINE_ENDS) + 1
        # A line that is longer than a chunk is taken in pieces, which begin where it begins.
        if not end and (whole or len(raw) == CHUNK_BYTES):
            end = len(raw)
        self._position += end
        folder = self._path.parent
        text = raw[:end].decode(errors="surrogateescape")
        clean = redact_paths(text, folder.resolve(), folder)
        return clean.encode(errors="surrogateescape")


async def ship(log: Path, append: Append, ended: asyncio.Event) -> None:
    """Ships the log until `ended` is set and all is stored, or nothing more is accepted.

    The receiver's count is the truth, so neither a repeat nor a restart of the
    agent doubles anything. Raises grpc.aio.AioRpcError when it is refused.
    """
    offset, backoff, redacted = 0, Backoff(), RedactedLog(log)
    while True:
        last = ended.is_set()
        data = await asyncio.to_thread(redacted.read, offset, whole=last)
        if data:
            try:
                offset = await append(offset, data)
                backoff.reset()
            except grpc.aio.AioRpcError as error:
                if is_final(error):
                    raise
                await backoff.pause()
        elif last:
            return
        else:
            await _wait(ended, POLL_SECONDS)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
