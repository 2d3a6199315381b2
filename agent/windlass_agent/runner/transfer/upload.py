"""Artifacts on their way out: a manifest, its files, and the word that all are there."""

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import aiohttp
from yarl import URL

from windlass.api.models.v1 import models_pb2
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.core.killpoints import reach
from windlass_agent.download import said_of_store
from windlass_agent.runner.protocol.link import AgentLink, CallRefused, Rejected, backoff
from windlass_agent.runner.protocol.outcome import Failure

_PARALLEL = 4
# So many failures may pass unsaid: a connection is lost now and then.
_QUIET_TRIES = 3
# A file was lost, or cut short, on its way.
_INCOMPLETE = "upload_incomplete"


class Uploader:
    """Uploads files of a folder as one artifact."""

    def __init__(
        self,
        link: AgentLink,
        session: aiohttp.ClientSession,
        *,
        patience_seconds: float,
        warn: Callable[[str], None],
    ) -> None:
        self._link = link
        self._session = session
        self._patience_seconds = patience_seconds
        self._warn = warn

    async def upload(
        self,
        kind: "pb.ArtifactKind.ValueType",
        *,
        step: int,
        files: Sequence[Path],
        metrics: Mapping[str, float] | None = None,
        is_adapter: bool = False,
    ) -> None:
        """Returns when the artifact is committed.

        Raises Failure `upload_failed` after `patience_seconds` in which no file got through,
        and for files that the platform does not take.
        """
        try:
            await self._upload(kind, step, files, metrics=metrics or {}, is_adapter=is_adapter)
        except Rejected as rejected:
            raise Failure("upload_failed", f"The model cannot be stored: {rejected}") from rejected

    async def _upload(
        self,
        kind: "pb.ArtifactKind.ValueType",
        step: int,
        files: Sequence[Path],
        *,
        metrics: Mapping[str, float],
        is_adapter: bool,
    ) -> None:
        manifest = await asyncio.to_thread(_manifest, files)
        by_name = {file.name: file for file in files}
        clock = asyncio.get_running_loop().time
        missing, alive, pauses = len(files) + 1, clock(), backoff()
        for tries in itertools.count(1):
            # Each time it gives fresh URLs, for the files that are not there yet.
            created = await self._link.create_artifact(kind, step=step, manifest=manifest)
            if len(created.uploads) < missing:
                missing, alive, pauses = len(created.uploads), clock(), backoff()
            commit = pb.CommitArtifactRequest(
                artifact_id=created.artifact_id, metrics=metrics, is_adapter=is_adapter
            )
            reason = await self._put_all(created.uploads, by_name)
            reach("runner.artifact_uploaded")
            reason = reason or await self._commit(commit)
            if not reason:
                return
            if clock() - alive > self._patience_seconds:
                raise Failure("upload_failed", f"The model could not be uploaded: {reason}.")
            if tries == _QUIET_TRIES:
                self._warn(f"The model cannot be uploaded now; retrying: {reason}.")
            await pauses.pause()

    async def _commit(self, request: pb.CommitArtifactRequest) -> str:
        try:
            await self._link.commit_artifact(request)
        except CallRefused as refused:
            if refused.reason != _INCOMPLETE:
                raise
            return str(refused)
        return ""

    async def _put_all(
        self, uploads: Sequence[models_pb2.FileUrl], files: Mapping[str, Path]
    ) -> str:
        """Uploads every file; returns the error of one that failed, if any."""
        waiting = list(uploads)
        reasons: list[str] = []

        async def put_some() -> None:
            while waiting:
                upload = waiting.pop()
                if reason := await self._put(upload.url, files[upload.path]):
                    reasons.append(reason)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_PARALLEL, len(waiting))):
                group.create_task(put_some())
        return reasons[-1] if reasons else ""

    async def _put(self, url: str, file: Path) -> str:
        try:
            with file.open("rb") as body:
                async with self._session.put(URL(url, encoded=True), data=body) as response:
                    answer = (
                        f"the object store answered with HTTP {response.status} {response.reason}"
                    )
                    return "" if response.ok else answer
        except (aiohttp.ClientError, TimeoutError) as error:
            return said_of_store(error)


def _manifest(files: Sequence[Path]) -> models_pb2.Manifest:
    return models_pb2.Manifest(files=[_entry(file) for file in files])


def _entry(path: Path) -> models_pb2.ManifestEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        return models_pb2.ManifestEntry(path=path.name, bytes=file.tell(), sha256=digest)
