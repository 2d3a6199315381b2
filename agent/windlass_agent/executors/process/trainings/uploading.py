"""Files of a checkpoint on their way to the object store: deltas of them, or all of them."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import aiohttp
from yarl import URL

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core.backoff import Backoff
from windlass_agent.download.transfer import said_of_store
from windlass_agent.executors.process.trainings.checkpoint_folder import (
    CheckpointFolder,
    UploadFailed,
)
from windlass_agent.executors.process.trainings.deltas import MadeDelta, made_deltas

PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.2
_PIECE = 2**20
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=300)


class CheckpointUpload:
    """One checkpoint that its engine has written."""

    def __init__(
        self,
        spec: Callable[[], pb.EngineTrainingWorkload],
        models: Callable[[str], Path],
        announce: Callable[[list[models_pb2.FileUrl]], None],
        scratch: Path,
    ):
        """`spec` has the newest URLs, `models` leads to the files of a version of a model.

        `announce` tells the platform which deltas there are, so that the spec has URLs for them.
        """
        self._spec = spec
        self._models = models
        self._announce = announce
        self._scratch = scratch

    async def put(self, folder: CheckpointFolder) -> list[models_pb2.FileUrl]:
        """Puts all files; returns them with their digests. Raises UploadFailed."""
        spec = self._spec()
        if not spec.parent_version_id:
            return await self._put_all(folder, {})
        model, files = self._models(spec.parent_version_id), list(spec.parent_files)
        async with made_deltas(folder, model, files, self._scratch) as deltas:
            if deltas:
                self._announce(
                    [models_pb2.FileUrl(path=name, bytes=one.size) for name, one in deltas.items()]
                )
                await self._until_offered()
            return await self._put_all(folder, deltas)

    async def _until_offered(self) -> None:
        """Waits until there are URLs for deltas; without any, files go up whole."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not self._spec().delta_uploads:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return

    async def _put_all(
        self, folder: CheckpointFolder, deltas: Mapping[str, MadeDelta]
    ) -> list[models_pb2.FileUrl]:
        found = []
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            for file in list(self._spec().uploads):
                delta = deltas.get(file.path)
                if delta is not None and self._is_offered(file.path, delta):
                    sha256 = delta.sha256
                    await self._put_delta(session, file.path, delta)
                else:
                    sha256 = await asyncio.to_thread(folder.digest, file)
                    await self._put_whole(session, folder, file)
                found.append(models_pb2.FileUrl(path=file.path, bytes=file.bytes, sha256=sha256))
        return found

    def _is_offered(self, path: str, delta: MadeDelta) -> bool:
        """True where there is a URL for a delta of its size, and not of another that there was."""
        return any(
            (one.path, one.bytes) == (path, delta.size) for one in self._spec().delta_uploads
        )

    async def _put_delta(self, session: aiohttp.ClientSession, path: str, delta: MadeDelta) -> None:
        def opened() -> int:
            return os.open(delta.path, os.O_RDONLY | os.O_CLOEXEC)

        def url() -> str:
            return _url(self._spec().delta_uploads, path)

        await _put(session, path, url, partial(_content, opened), delta.size)

    async def _put_whole(
        self, session: aiohttp.ClientSession, folder: CheckpointFolder, file: models_pb2.FileUrl
    ) -> None:
        def url() -> str:
            return _url(self._spec().uploads, file.path) or file.url

        content = partial(_content, lambda: folder.open(file))
        await _put(session, file.path, url, content, file.bytes)


def _url(files: Iterable[models_pb2.FileUrl], path: str) -> str:
    return next((one.url for one in files if one.path == path), "")


async def put_bytes(content: bytes, upload: Callable[[], models_pb2.FileUrl]) -> models_pb2.FileUrl:
    """Puts what an engine computed; returns it with its digest. Raises UploadFailed."""

    async def pieces() -> AsyncIterator[bytes]:
        yield content

    file = upload()
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        await _put(session, file.path, lambda: upload().url, pieces, file.bytes)
    digest = hashlib.sha256(content).digest()
    return models_pb2.FileUrl(path=file.path, bytes=file.bytes, sha256=digest)


async def _put(
    session: aiohttp.ClientSession,
    path: str,
    newest_url: Callable[[], str],
    content: Callable[[], AsyncIterator[bytes]],
    size: int,
) -> None:
    """Puts a content again and again for a while; each try reads the newest URL."""
    clock, backoff = asyncio.get_running_loop().time, Backoff()
    begun, headers = clock(), {"content-length": str(size)}
    while True:
        try:
            url, body = URL(newest_url(), encoded=True), content()
            async with session.put(url, data=body, headers=headers) as answer:
                if answer.ok:
                    return
                reason = f"the object store answered with HTTP {answer.status}"
        except (aiohttp.ClientError, TimeoutError) as error:
            reason = said_of_store(error)
        if clock() - begun > PATIENCE_SECONDS:
            raise UploadFailed(f"{path} could not be uploaded: {reason}.")
        await backoff.pause()


async def _content(opened: Callable[[], int]) -> AsyncIterator[bytes]:
    descriptor = await asyncio.to_thread(opened)
    try:
        while piece := await asyncio.to_thread(os.read, descriptor, _PIECE):
            yield piece
    finally:
        os.close(descriptor)
