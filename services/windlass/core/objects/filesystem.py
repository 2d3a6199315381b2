"""Objects as files under one folder, and signed URLs that our gateway serves."""

import asyncio
import hashlib
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import FileIO
from itertools import islice
from pathlib import Path
from subprocess import PIPE, Popen
from typing import ParamSpec, TypeVar
from urllib.parse import parse_qsl, unquote

from windlass.core.clock import now_seconds
from windlass.core.objects import folder_walk
from windlass.core.objects.batches import Expectation, batched
from windlass.core.objects.folder_walk import MISSING, entries
from windlass.core.objects.port import (
    InvalidKey,
    ObjectInfo,
    ObjectNotFound,
    Sha256,
    SignatureInvalid,
    StoredObject,
    StoreUnavailable,
    validate_key,
    validate_prefix,
)
from windlass.core.objects.signing import SignedRequest, UrlSigner
from windlass.core.objects.writer import Writer, remove_orphans, storage_errors

P = ParamSpec("P")
T = TypeVar("T")

_BATCH_BYTES = 2**20
_READ_BYTES = 2**20
_THREADS = 16
# Younger temporary files may belong to a put that has not locked its own yet.
_ORPHAN_SECONDS = 60.0
# What a thread does at once; more is for a process.
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class OpenFile:
    """An OpenObject: a file, which `read` closes at its end."""

    file: FileIO
    size: int
    threads: ThreadPoolExecutor

    async def read(self, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """See OpenObject.read."""
        run = asyncio.get_running_loop().run_in_executor
        with self.file:
            for at in range(start, stop, _READ_BYTES):
                wanted = min(_READ_BYTES, stop - at)
                chunk = await run(self.threads, os.pread, self.file.fileno(), wanted, at)
                if len(chunk) != wanted:
                    raise StoreUnavailable("An object became shorter while it was read.")
                yield chunk

    def close(self) -> None:
        """See OpenObject.close."""
        self.file.close()


class FilesystemStore:
    """An ObjectStore under `root`: folders of mode 0700, files of mode 0600."""

    def __init__(self, root: Path, *, public_url: str, secret: bytes):
        self._content = root.resolve() / "content"
        self._incoming = root.resolve() / "incoming"
        self._signer = UrlSigner(public_url, secret)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="objects")
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (self._content, self._incoming):
            folder.mkdir(exist_ok=True, mode=0o700)
        remove_orphans(self._incoming, older_than=time.time() - _ORPHAN_SECONDS)

    async def put(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        *,
        max_bytes: int | None = None,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
    ) -> StoredObject:
        """See ObjectStore.put: a temporary file, fsync, rename."""
        path = self._path(key)
        expected = Expectation(max_bytes=max_bytes, size=bytes, sha256=sha256)
        writer = Writer(self._incoming, self._threads)
        try:
            async for batch in batched(chunks, expected, lambda _: _BATCH_BYTES):
                await writer.write(batch)
            digest = await writer.finish()
            expected.check_whole(writer.size, digest)
            await writer.publish(path, root=self._content)
        finally:
            await writer.discard()
        return StoredObject(key=key, bytes=writer.size, sha256=digest)

    async def take(self, request: SignedRequest, chunks: AsyncIterator[bytes]) -> StoredObject:
        """See ServedStore.take."""
        return await self.put(request.key, chunks, bytes=request.bytes, sha256=request.sha256)

    async def give(self, request: SignedRequest) -> OpenFile:
        """See ServedStore.give."""
        return await self.open(request.key)

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        """See ObjectStore.get."""
        opened = await self.open(key)
        size = opened.size
        async for chunk in opened.read(start, size if end is None else min(end, size)):
            yield chunk

    async def open(self, key: str) -> "OpenFile":
        """The object's file; raises ObjectNotFound."""
        path = self._path(key)
        with storage_errors():
            try:
                file = path.open("rb", buffering=0)
            except MISSING:
                raise ObjectNotFound(f"There is no object {key}.") from None
        return OpenFile(file, os.fstat(file.fileno()).st_size, self._threads)

    async def head(self, key: str) -> ObjectInfo | None:
        """See ObjectStore.head."""
        path = self._path(key)
        return _info(key, path) if path.is_file() else None

    async def delete(self, key: str) -> None:
        """See ObjectStore.delete."""
        path = self._path(key)

        def remove() -> None:
            with storage_errors(), suppress(*MISSING):
                if path.is_file():
                    path.unlink()
                    self._prune(path.parent)

        await self._run(remove)

    async def delete_prefix(self, prefix: str) -> int:
        """See ObjectStore.delete_prefix."""
        folder = self._path(validate_prefix(prefix)[:-1])
        number, _ = await self._walk("removed", folder)
        await self._run(self._prune, folder.parent)
        return number

    async def count(self, prefix: str) -> tuple[int, int]:
        """See ObjectStore.count."""
        return await self._walk("sizes", self._path(validate_prefix(prefix)[:-1]))

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore.list."""
        folder = self._path(validate_prefix(prefix)[:-1]) if prefix else self._content
        found = _infos(folder, prefix)
        while page := await self._run(lambda: tuple(islice(found, _PAGE))):
            for one in page:
                yield one

    async def digest(self, key: str) -> Sha256:
        """See ObjectStore.digest."""
        file = (await self.open(key)).file

        def read() -> Sha256:
            with storage_errors(), file:
                return hashlib.file_digest(file, "sha256").digest()

        return await self._run(read)

    async def presign_get(
        self, key: str, *, expires: int, filename: str | None = None, holder: str = ""
    ) -> str:
        """See ObjectStore.presign_get."""
        until = now_seconds() + expires
        request = SignedRequest("GET", validate_key(key), until, filename=filename, holder=holder)
        return self._signer.url(request)

    async def presign_put(
        self,
        key: str,
        *,
        expires: int,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
        holder: str = "",
    ) -> str:
        """See ObjectStore.presign_put; here the digest is bound too."""
        until = now_seconds() + expires
        request = SignedRequest(
            "PUT", validate_key(key), until, bytes=bytes, sha256=sha256, holder=holder
        )
        return self._signer.url(request)

    def verify(self, method: str, key: str, query: Mapping[str, str]) -> SignedRequest:
        """The request that one of our URLs permits; raises SignatureInvalid."""
        return self._signer.verify(method, key, query)

    def file(self, url: str) -> Path | None:
        """The file that one of our signed URLs reads; None for any other URL, and where it is
        not: a process on another machine has the same secret and no files.
        """
        where, _, query = url.partition("?")
        pairs = dict(parse_qsl(query, keep_blank_values=True))
        try:
            request = self.verify("GET", unquote(where).partition("/objects/")[2], pairs)
        except (SignatureInvalid, InvalidKey):
            return None
        path = self._path(request.key)
        return path if path.is_file() and not request.holder else None

    async def check(self) -> None:
        """See ObjectStore.check."""

        def write() -> None:
            probe = self._incoming / f"check-{secrets.token_hex(8)}"
            with storage_errors():
                try:
                    probe.write_bytes(b"ok")
                finally:
                    probe.unlink(missing_ok=True)

        await self._run(write)

    async def close(self) -> None:
        """Ends the threads after their present work."""
        await asyncio.to_thread(self._threads.shutdown)

    def _path(self, key: str) -> Path:
        return self._content / validate_key(key)

    def _prune(self, folder: Path) -> None:
        with suppress(OSError):
            while folder != self._content:
                folder.rmdir()
                folder = folder.parent

    async def _walk(self, walk: str, folder: Path) -> tuple[int, int]:
        """Objects and bytes: of a page in a thread, and where there are more in a process."""

        def begin() -> list[int]:
            with storage_errors():
                return list(islice(folder_walk.WALKS[walk](folder), _PAGE))

        page = await self._run(begin)
        if len(page) < _PAGE:
            return len(page), sum(page)
        number, size = await self._walk_apart(walk, folder)
        if walk == "removed":
            number += len(page)
        return number, size

    async def _walk_apart(self, walk: str, folder: Path) -> tuple[int, int]:
        """The program of a walk, which ends with the call; begun in a thread: a fork takes long."""
        command = (sys.executable, "-I", "-S", folder_walk.__file__, walk, str(folder))
        begin = self._run(
            Popen, command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
        )
        begun = asyncio.ensure_future(begin)
        try:
            process = await asyncio.shield(begun)
            output, errors = await self._run(process.communicate)
        except asyncio.CancelledError:
            begun.add_done_callback(_kill)
            raise
        if process.returncode:
            reason = errors.strip().rpartition("\n")[2]
            raise StoreUnavailable(f"The object store's folder cannot be walked: {reason}")
        number, size = map(int, output.split())
        return number, size

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))


def _kill(begun: "asyncio.Future[Popen[str]]") -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().kill()


def _info(key: str, path: Path) -> ObjectInfo | None:
    with suppress(*MISSING):
        status = path.stat()
        return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
    return None


def _infos(folder: Path, prefix: str) -> Iterator[ObjectInfo]:
    """Yields in the order of S3, which compares whole keys: folders sort with a slash."""
    named = [one.name + "/" if one.is_dir() else one.name for one in entries(folder)]
    for name in sorted(named):
        if name.endswith("/"):
            yield from _infos(folder / name, prefix + name)
        elif (found := _info(prefix + name, folder / name)) is not None:
            yield found
