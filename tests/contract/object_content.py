"""Streams for the tests of object stores."""

import asyncio
from collections.abc import AsyncIterator

from windlass.core.objects import ObjectStore

MIB = 2**20


async def stream(content: bytes, *, step: int = 65536) -> AsyncIterator[bytes]:
    for at in range(0, len(content), step):
        yield content[at : at + step]
        await asyncio.sleep(0)


async def repeated(chunk: bytes, times: int) -> AsyncIterator[bytes]:
    for _ in range(times):
        yield chunk
        await asyncio.sleep(0)


async def read(store: ObjectStore, key: str, start: int = 0, end: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in store.get(key, start=start, end=end)])


async def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [found.key async for found in store.list(prefix)]
