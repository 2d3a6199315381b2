"""Files of a model's version, brought from the object store and compared with their digests."""

import asyncio
import errno
import hashlib
import os
import re
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import aiohttp
from yarl import URL

from windlass.api.models.v1 import models_pb2
from windlass.core.backoff import Backoff
from windlass.core.ids import is_identifier
from windlass_agent.download.local_copy import LocalObjects, copied, no_objects

_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]{0,199}")
_SCHEMES = ("http://", "https://")
_PARALLEL = 4
_BATCH_BYTES = 4 * 2**20
_REFUSED = frozenset({400, 401, 403, 404, 410})
PATIENCE_SECONDS = 30.0


class DownloadError(Exception):
    """A file did not come, or not as promised; the message says which and why."""


class DiskError(DownloadError):
    """The disk has no room for the files, or fails."""


class _Refused(DownloadError):
    """The same URL can only fail again."""


class _Differs(DownloadError):
    """The file is another one than was promised, whatever its URL."""


# The files of an order that may have come since, with URLs that are good now.
Renewed = Callable[[], Iterable[models_pb2.FileUrl]]


async def fetch_files(
    files: list[models_pb2.FileUrl],
    folder: Path,
    patience_seconds: float,
    renewed: Renewed | None = None,
    local: LocalObjects = no_objects,
) -> None:
    """Brings what a folder lacks of files, each compared with its digest; raises DownloadError.

    A file has its name once it is whole, so that the next call goes on where one has failed. What
    is a `local` file is copied. Each try reads the newest URL. A store that is away is asked again
    until no byte has come for `patience_seconds`.
    """
    waiting = missing(folder, files)
    newest = renewed or (lambda: files)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:

        async def take() -> None:
            while waiting:
                await _fetch(session, folder, waiting.pop(), patience_seconds, newest, local)

        tasks = [asyncio.create_task(take()) for _ in range(min(_PARALLEL, len(waiting)))]
        try:
            await asyncio.gather(*tasks)
        except OSError as error:
            raise storage_error(error) from error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def fetch_versions(
    files: list[models_pb2.FileUrl], folder: Path, *, local: LocalObjects = no_objects
) -> None:
    """Brings the files of a weight version into a folder; raises DownloadError."""
    for file in files:
        _check(file)
    folder.mkdir(mode=0o700, exist_ok=True)
    await fetch_files(files, folder, PATIENCE_SECONDS, local=local)


async def _fetch(
    session: aiohttp.ClientSession,
    folder: Path,
    file: models_pb2.FileUrl,
    patience_seconds: float,
    newest: Renewed,
    local: LocalObjects,
) -> None:
    path = folder / file.path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # No file's own name begins with a dot.
    draft = path.with_name(f".{path.name}.part")
    try:
        source = local(_newest_url(file, newest))
        if source is None or not await copied(source, file, draft):
            await _transfer(session, file, draft, patience_seconds, newest)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)


async def _transfer(
    session: aiohttp.ClientSession,
    file: models_pb2.FileUrl,
    draft: Path,
    patience_seconds: float,
    newest: Renewed,
) -> None:
    clock, backoff = asyncio.get_running_loop().time, Backoff()
    reached, alive = 0, clock()
    while True:
        url = _newest_url(file, newest)
        transfer = _Transfer(file, draft, url)
        try:
            await transfer.run(session)
            return
        except _Differs:
            raise
        except _Refused:
            if _newest_url(file, newest) == url:
                raise
            # It has expired meanwhile.
            continue
        except (DownloadError, aiohttp.ClientError, TimeoutError) as error:
            if transfer.size > reached:
                reached, alive = transfer.size, clock()
            if clock() - alive > patience_seconds:
                reason = said_of_store(error)
                raise DownloadError(f"{file.path} could not be downloaded: {reason}") from error
        await backoff.pause()


class _Transfer:
    """One try at one file."""

    def __init__(self, file: models_pb2.FileUrl, path: Path, url: str):
        self._file = file
        self._path = path
        self._url = url
        self._hash = hashlib.sha256()
        self.size = 0

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Raises DownloadError, aiohttp.ClientError, TimeoutError or OSError."""
        url = URL(self._url, encoded=True)
        async with session.get(url, allow_redirects=False) as response:
            if response.status in _REFUSED:
                raise _Refused(
                    f"{self._file.path}: the object store answered with HTTP {response.status}"
                )
            if response.status != 200:
                raise DownloadError(f"the object store answered with HTTP {response.status}")
            batch, sink = bytearray(), self._sink()
            next(sink)
            async for chunk in response.content.iter_any():
                batch += chunk
                self.size += len(chunk)
                if self.size > self._file.bytes:
                    raise _Differs(f"{self._file.path} is larger than its listed size")
                if len(batch) >= _BATCH_BYTES:
                    await asyncio.to_thread(sink.send, bytes(batch))
                    batch.clear()
            if batch:
                await asyncio.to_thread(sink.send, bytes(batch))
            await asyncio.to_thread(sink.send, b"")
        if self.size != self._file.bytes:
            raise DownloadError(f"only {self.size} of {self._file.bytes} bytes arrived")
        if self._hash.digest() != self._file.sha256:
            raise _Differs(f"{self._file.path} does not match its listed SHA-256")

    def _sink(self) -> Generator[None, bytes, None]:
        """Writes what it is sent, and has it on the disk once that is nothing.

        The file is closed by whoever has the generator last. A cancellation leaves a thread with
        it: if the file was closed meanwhile, its number could be that of another one.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as out:
            while data := (yield):
                self._hash.update(data)
                view = memoryview(data)
                while view:
                    view = view[out.write(view) or 0 :]
            os.fsync(out)
            yield


def _newest_url(file: models_pb2.FileUrl, newest: Renewed) -> str:
    """The URL that came last for the same content."""
    for one in newest():
        if (one.path, one.sha256) == (file.path, file.sha256) and one.url.startswith(_SCHEMES):
            return one.url
    return file.url


def safe_path(path: str) -> str:
    """A relative path that stays in its folder; raises DownloadError."""
    if not all(_SEGMENT.fullmatch(segment) for segment in path.split("/")):
        raise DownloadError(f"{path[:200]!r} must be a relative path within the model's folder")
    return path


def checked(version_id: str, files: Iterable[models_pb2.FileUrl]) -> list[models_pb2.FileUrl]:
    """The files of a version, whose names may become paths; raises DownloadError."""
    if not is_identifier(version_id):
        raise DownloadError(f"{version_id[:200]!r} is not a valid id of a model version")
    found = list(files)
    for file in found:
        _check(file)
    return found


def _check(file: models_pb2.FileUrl) -> None:
    safe_path(file.path)
    if len(file.sha256) != 32:
        raise DownloadError(f"{file.path} has no SHA-256")
    if not file.url.startswith(_SCHEMES):
        raise DownloadError(f"{file.path} has no URL")


def is_whole(folder: Path, files: Iterable[models_pb2.FileUrl]) -> bool:
    """Returns True if a folder has every file at its listed size."""
    try:
        return all((folder / file.path).stat().st_size == file.bytes for file in files)
    except OSError:
        return False


def missing(folder: Path, files: Iterable[models_pb2.FileUrl]) -> list[models_pb2.FileUrl]:
    """The files that a folder does not have at their listed size."""
    return [file for file in files if not is_whole(folder, [file])]


def said_of_store(error: Exception) -> str:
    """The words for tenants about a store that fails, without its address."""
    if isinstance(error, DownloadError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "the object store did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "the object store cannot be reached"
    return f"the connection to the object store was lost ({type(error).__name__})"


def storage_error(error: OSError) -> DiskError:
    """The words for tenants about a disk that fails."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskError("no space is left on the disk")
    return DiskError(f"the disk cannot be written: {error}")
