"""Carries a growing log file to the control plane, each byte once."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc

from windlass.core.backoff import Backoff
from windlass_agent.retrying import is_final

CHUNK_BYTES = 256 * 1024
POLL_SECONDS = 1.0

# Takes bytes that begin at an offset; answers how many bytes are stored in all.
Append = Callable[[int, bytes], Awaitable[int]]


async def ship(log: Path, append: Append, ended: asyncio.Event) -> None:
    """Ships the log until `ended` is set and all is stored, or nothing more is accepted.

    The receiver's count is the truth, so neither a repeat nor a restart of the
    agent doubles anything. Raises grpc.aio.AioRpcError when it is refused.
    """
    offset, backoff = 0, Backoff()
    while True:
        last = ended.is_set()
        data = await asyncio.to_thread(_read, log, offset)
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


def _read(log: Path, offset: int) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(offset)
            return file.read(CHUNK_BYTES)
    except FileNotFoundError:
        return b""


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
