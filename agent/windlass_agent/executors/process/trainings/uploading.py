"""Files of a checkpoint on their way to the object store."""

import asyncio
import contextlib
import hashlib
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from pathlib import Path

import aiohttp
from yarl import URL

from windlass.api.models.v1 import models_pb2
from windlass.core.backoff import Backoff
from windlass_agent.download.transfer import said_of_store

PATIENCE_SECONDS = 600.0
_PIECE = 2**20
# As the plugin names what it writes in a run's folder.
_CHECKPOINT = "checkpoint"
_RUN = re.compile(r"run-[0-9a-f]{1,64}")


class UploadFailed(Exception):
    """A checkpoint that is not what was asked for, or cannot be stored; for people."""


async def put_files(
    checkpoints: Path, run: str, uploads: Callable[[], Iterable[models_pb2.FileUrl]]
) -> list[models_pb2.FileUrl]:
    """Puts the files of a run's checkpoint; returns them with digests. Raises UploadFailed.

    The engine wrote the folder, so that each file is one of its own, of the size that is expected,
    and no link. Each try reads the newest URL.
    """
    if not _RUN.fullmatch(run):
        raise UploadFailed("The engine named no folder of its own.")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300)
    found = []
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for file in list(uploads()):
            digest = await asyncio.to_thread(_digest, checkpoints / run, file)
            await _put(session, partial(_content, checkpoints / run, file), file, uploads)
            found.append(models_pb2.FileUrl(path=file.path, bytes=file.bytes, sha256=digest))
    return found


async def put_bytes(content: bytes, upload: Callable[[], models_pb2.FileUrl]) -> models_pb2.FileUrl:
    """Puts what an engine computed; returns it with its digest. Raises UploadFailed."""

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    timeout, file = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300), upload()
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await _put(session, pieces, file, lambda: [upload()])
    digest = hashlib.sha256(content).digest()
    return models_pb2.FileUrl(path=file.path, bytes=file.bytes, sha256=digest)


async def _put(
    session: aiohttp.ClientSession,
    content: Callable[[], AsyncIterator[bytes]],
    file: models_pb2.FileUrl,
    uploads: Callable[[], Iterable[models_pb2.FileUrl]],
) -> None:
    clock, backoff = asyncio.get_running_loop().time, Backoff()
    begun = clock()
    while True:
        url = next((one.url for one in uploads() if one.path == file.path), file.url)
        try:
            headers = {"content-length": str(file.bytes)}
            target = URL(url, encoded=True)
            async with session.put(target, data=content(), headers=headers) as answer:
                if answer.ok:
                    return
                reason = f"the object store answered with HTTP {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = said_of_store(error)
        if clock() - begun > PATIENCE_SECONDS:
            raise UploadFailed(f"{file.path} could not be uploaded: {reason}.")
        await backoff.pause()


async def _content(folder: Path, file: models_pb2.FileUrl) -> AsyncIterator[bytes]:
    descriptor = await asyncio.to_thread(_opened, folder, file)
    try:
        while piece := await asyncio.to_thread(os.read, descriptor, _PIECE):
            yield piece
    finally:
        os.close(descriptor)


def _digest(folder: Path, file: models_pb2.FileUrl) -> bytes:
    descriptor = _opened(folder, file)
    with os.fdopen(descriptor, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _opened(folder: Path, file: models_pb2.FileUrl) -> int:
    """A descriptor of a file that the engine wrote; raises UploadFailed."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with contextlib.ExitStack() as open_folders:
        above: int | None = None
        try:
            for name in (str(folder), _CHECKPOINT):
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
