"""The files of versions in the object store: where they go in, and whether they are sound."""

import asyncio

from windlass.api.models.v1 import models_pb2 as pb
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.core.objects import ObjectNotFound, ObjectStore
from windlass.core.rpc import auth
from windlass.modelfiles import most_bytes
from windlass.models.domain import Import, ModelTask
from windlass.models.manifest import (
    Manifest,
    ManifestFile,
    check_document,
    documents,
    has_scoring_head,
)

# Each may take some hundred megabytes while it is read.
_DOCUMENTS_AT_ONCE = 2


class Artifacts:
    """Signs uploads and checks what came."""

    def __init__(self, objects: ObjectStore, *, presign_seconds: int):
        self._objects = objects
        self.presign_seconds = presign_seconds
        self._reading = asyncio.Semaphore(_DOCUMENTS_AT_ONCE)

    def upload_urls(self, prefix: str, manifest: Manifest) -> list[pb.FileUrl]:
        """URLs to PUT each file to, valid as long as the caller's key."""
        holder = auth.current().key_id
        return [
            pb.FileUrl(
                path=file.path,
                url=self._objects.presign_put(
                    prefix + file.path,
                    expires=self.presign_seconds,
                    bytes=file.size,
                    sha256=file.sha256,
                    holder=holder,
                ),
                bytes=file.size,
                sha256=file.sha256,
            )
            for file in manifest.files
        ]

    async def verify_import(self, import_: Import) -> ModelTask:
        """Compares every file with its promise, reads what could name code; returns the task.

        Raises FailedPrecondition for a file that is missing or differs, InvalidArgument
        for a model that is refused.
        """
        check_sizes(import_.manifest)
        for file in import_.manifest.files:
            await self._verify(import_.object_prefix + file.path, file)
        return await self.inspect(import_.object_prefix, import_.manifest)

    async def inspect(self, prefix: str, manifest: Manifest) -> ModelTask:
        """Reads what could name code; returns the task, raises InvalidArgument."""
        check_sizes(manifest)
        task = ModelTask.GENERATION
        for file in documents(manifest):
            async with self._reading:
                content = b"".join([part async for part in self._objects.get(prefix + file.path)])
                await asyncio.to_thread(check_document, manifest, file.path, content)
            if file.path == "config.json" and has_scoring_head(content):
                task = ModelTask.SCORING
        return task

    async def _verify(self, key: str, file: ManifestFile) -> None:
        info = await self._objects.head(key)
        if info is None:
            raise FailedPrecondition(f"{file.path!r} was not uploaded.", reason="upload_incomplete")
        if info.bytes != file.size:
            raise _differs(f"{file.path!r} has {info.bytes} bytes instead of {file.size}.")
        try:
            digest = await self._objects.digest(key)
        except ObjectNotFound as error:
            raise FailedPrecondition(
                f"{file.path!r} was not uploaded.", reason="upload_incomplete"
            ) from error
        if digest != file.sha256:
            raise _differs(f"{file.path!r} does not have the promised SHA-256.")


def check_sizes(manifest: Manifest) -> None:
    """Raises InvalidArgument for a document that nobody should read whole."""
    for file in documents(manifest):
        if file.size > most_bytes(file.path):
            raise InvalidArgument(f"{file.path!r} is too large to be read.", param="files")


def _differs(message: str) -> FailedPrecondition:
    return FailedPrecondition(message, reason="upload_mismatch")
