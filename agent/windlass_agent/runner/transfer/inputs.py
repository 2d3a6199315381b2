"""A job's inputs, from their URLs into its folder: in parallel, resumed, checked."""

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import aiohttp
from yarl import URL

from windlass.api.models.v1 import models_pb2
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.backends import adapters
from windlass.modelfiles import RefusedDocument, check_folder
from windlass_agent.download import said_of_store
from windlass_agent.runner.protocol.link import AgentLink, backoff
from windlass_agent.runner.protocol.outcome import Failure

TRAINING_FILE = "data/training.jsonl"
VALIDATION_FILE = "data/validation.jsonl"
EVALUATION_FILE = "data/evaluation.jsonl"
_PARALLEL = 4
_CHUNK_BYTES = 1 << 20
_EXPIRED = frozenset({401, 403, 410})
_CORRUPT_LIMIT = 3
# So many failures of a file in a row may pass unsaid: a connection is lost now and then.
_QUIET_TRIES = 3


class _Interrupted(Exception):
    """An attempt that may be tried again."""


class _Expired(_Interrupted):
    """A URL that no longer opens."""


class Inputs:
    """Fetches what an assignment names into `folder`: model/, data/, resume/, and companions/."""

    def __init__(
        self,
        link: AgentLink,
        session: aiohttp.ClientSession,
        folder: Path,
        *,
        patience_seconds: float,
        warn: Callable[[str], None],
    ) -> None:
        self._link = link
        self._session = session
        self._folder = folder
        self._patience_seconds = patience_seconds
        self._warn = warn
        self._has_warned = False
        self._files: dict[str, models_pb2.FileUrl] = {}
        self._renewing = asyncio.Lock()

    async def fetch(self, assignment: pb.Assignment) -> None:
        """Downloads everything, four files at a time.

        Raises Failure `download_failed` after `patience_seconds` without a byte of one of them,
        and `unsafe_model` for a model that names code or files from elsewhere.
        """
        self._files = dict(_files(assignment))
        waiting = list(self._files)
        async with asyncio.TaskGroup() as group:
            for _ in range(min(_PARALLEL, len(waiting))):
                group.create_task(self._take(waiting))
        await asyncio.to_thread(check, self._folder)

    async def _take(self, waiting: list[str]) -> None:
        while waiting:
            await self._download(waiting.pop())

    async def _download(self, name: str) -> None:
        part = self._folder / f"{name}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        clock = asyncio.get_running_loop().time
        corrupt, size, alive, tries, pauses = 0, -1, clock(), itertools.count(1), backoff()
        while True:
            try:
                digest = await self._continue(name, part)
                if _is_sound(self._files[name], part, digest):
                    part.rename(self._folder / name)
                    return
                corrupt += 1
                part.unlink()
                reason = "what arrived does not match its checksum"
            except _Interrupted as error:
                reason = str(error)
                if isinstance(error, _Expired):
                    await self._renew(name, self._files[name].url)
            except (aiohttp.ClientError, TimeoutError) as error:
                reason = said_of_store(error)
            reached = part.stat().st_size if part.exists() else -1
            if reached > size:
                size, alive, tries, pauses = reached, clock(), itertools.count(1), backoff()
            if corrupt == _CORRUPT_LIMIT or clock() - alive > self._patience_seconds:
                raise Failure("download_failed", f"{name} could not be downloaded: {reason}.")
            if next(tries) == _QUIET_TRIES:
                self._say(f"{name} cannot be downloaded now; retrying: {reason}.")
            await pauses.pause()

    def _say(self, warning: str) -> None:
        """Warns once, for the first file: the others mostly wait for the same store."""
        if not self._has_warned:
            self._has_warned = True
            self._warn(warning)

    async def _continue(self, name: str, part: Path) -> bytes:
        """Downloads what is missing of a file; returns the digest of all of it."""
        have = part.stat().st_size if part.exists() else 0
        if have and have == self._files[name].bytes:
            return await asyncio.to_thread(_digest, part)
        headers = {"Range": f"bytes={have}-"} if have else {}
        url = URL(self._files[name].url, encoded=True)
        async with self._session.get(url, headers=headers) as response:
            if response.status in _EXPIRED:
                raise _Expired(f"the object store answered with HTTP {response.status}")
            if response.status == 416:
                part.unlink()
            if response.status not in (200, 206):
                raise _Interrupted(f"the object store answered with HTTP {response.status}")
            with part.open("ab" if response.status == 206 else "wb") as file:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    file.write(chunk)
        return await asyncio.to_thread(_digest, part)

    async def _renew(self, name: str, stale: str) -> None:
        async with self._renewing:
            if self._files[name].url == stale:
                self._files.update(_files(await self._link.assignment()))


def check(folder: Path) -> None:
    """Raises Failure `unsafe_model` where a model that came names code or files from elsewhere.

    The check at an import may be older than what loaders do now.
    """
    models = [folder / "model", *sorted(folder.glob("companions/*"))]
    try:
        for model in models:
            check_folder(model, adapter=model.name == adapters.ROLE)
    except RefusedDocument as refusal:
        raise Failure("unsafe_model", refusal.message, param="model") from refusal


def _files(assignment: pb.Assignment) -> Iterator[tuple[str, models_pb2.FileUrl]]:
    yield TRAINING_FILE, assignment.training_file
    if assignment.HasField("validation_file"):
        yield VALIDATION_FILE, assignment.validation_file
    if assignment.HasField("evaluation"):
        yield EVALUATION_FILE, assignment.evaluation.file
    for file in assignment.model_files:
        yield f"model/{_safe(file.path)}", file
    for companion in assignment.companions:
        for file in companion.files:
            yield f"companions/{_role(companion.role)}/{_safe(file.path)}", file
    for file in assignment.resume.files:
        yield f"resume/{_safe(file.path)}", file


def _role(role: str) -> str:
    if not (role.isascii() and role.isalpha()):
        raise Failure("download_failed", "A model of the job has no role.")
    return role


def _safe(path: str) -> str:
    pure = PurePosixPath(path)
    if not path or "\0" in path or pure.is_absolute() or ".." in pure.parts:
        raise Failure(
            "download_failed", "A file of the model has a path outside of the model's folder."
        )
    return str(pure)


def _is_sound(expected: models_pb2.FileUrl, part: Path, digest: bytes) -> bool:
    if expected.sha256:
        return digest == expected.sha256
    return not expected.bytes or part.stat().st_size == expected.bytes


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
