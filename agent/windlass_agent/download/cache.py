"""Versions of models on this machine's disk: downloaded once, checked, kept while they are used."""

import asyncio
import contextlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass.modelfiles.adapter_traits import ADAPTER_CONFIG
from windlass_agent.download.local_copy import LocalObjects, no_objects
from windlass_agent.download.room import (
    disk_bytes,
    free_bytes,
    held_bytes,
    needed_bytes,
    no_room,
    used_at,
)
from windlass_agent.download.transfer import (
    PATIENCE_SECONDS,
    DiskError,
    Renewed,
    checked,
    fetch_files,
    is_whole,
    missing,
    storage_error,
)
from windlass_agent.folders import private_folder

log = telemetry.logger("download")
_UNUSED_SECONDS = 24 * 3600.0


class ModelCache:
    """`<folder>/<version id>/`: complete and verified, or not there."""

    def __init__(
        self,
        folder: Path,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        local: LocalObjects = no_objects,
    ):
        self._local = local
        self._folder = private_folder(folder.resolve())
        self._patience_seconds = patience_seconds
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._users: dict[str, int] = defaultdict(int)
        # Drafts of this process; of one that was killed nobody knows what is whole.
        self._begun: set[Path] = set()

    @contextlib.contextmanager
    def using(self, *version_ids: str) -> Iterator[None]:
        """Keeps versions on disk for the length of the block."""
        for version_id in version_ids:
            self._users[version_id] += 1
        try:
            yield
        finally:
            for version_id in version_ids:
                self._users[version_id] -= 1

    async def fetch(
        self,
        version_id: str,
        files: Iterable[models_pb2.FileUrl],
        *,
        renewed: Renewed | None = None,
        spared: float = 0.0,
    ) -> Path:
        """The folder of a version, downloaded if need be; raises DownloadError.

        Versions that nothing uses give way, the oldest first, until there is room; so large a
        share of the disk is `spared`. A store that is away is asked again until no byte has come
        for the patience, by the `renewed` URLs; files that came whole are kept for the next call.
        """
        wanted = checked(version_id, files)
        target = self._folder / version_id
        async with self._locks[version_id]:
            try:
                if not is_whole(target, wanted):
                    await self._download(target, wanted, spared, renewed)
                os.utime(target)
            except OSError as error:
                raise storage_error(error) from error
        return target

    def path(self, version_id: str) -> Path:
        """The folder of a version, there or not; raises DownloadError for what is no id."""
        checked(version_id, ())
        return self._folder / version_id

    def draft_bytes(self, version_id: str) -> int:
        """Bytes that have come of a version that is not there yet."""
        return held_bytes(self._folder / f"{version_id}.part")

    def versions(self) -> frozenset[str]:
        """The versions that are on disk now."""
        names = (path.name for path in self._folder.iterdir())
        return frozenset(name for name in names if not name.endswith(".part"))

    def complete_models(self, most: int) -> list[str]:
        """The versions of complete weights on disk, those used last first; `most` of them."""

        def last_use(path: Path) -> tuple[bool, float]:
            return self._users.get(path.name, 0) > 0, used_at(path)

        found = (self._folder / name for name in self.versions())
        complete = [path for path in found if not (path / ADAPTER_CONFIG).exists()]
        return [path.name for path in sorted(complete, key=last_use, reverse=True)[:most]]

    async def prune(self) -> None:
        """Removes versions that nothing has used for a day, and what a crash left."""
        for path in tuple(self._folder.iterdir()):
            if time.time() - path.stat().st_mtime > _UNUSED_SECONDS:
                await self._remove(path)

    async def keep_only(self, versions: Collection[str]) -> None:
        """Removes all other versions that nothing uses; for a cache that one engine alone has."""
        for path in tuple(self._folder.iterdir()):
            if path.name not in versions:
                await self._remove(path)

    async def _remove(self, path: Path) -> None:
        if not self._is_held(path):
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)

    def _is_held(self, path: Path) -> bool:
        name = path.name.removesuffix(".part")
        return self._users[name] > 0 or self._locks[name].locked()

    async def _make_room(self, needed: int, spared: float) -> None:
        """Removes versions that nothing uses until there is room; raises DownloadError.

        Where that would not be enough, it removes none.
        """
        kept = int(disk_bytes(self._folder) * spared)
        found = [path for path in self._folder.iterdir() if not self._is_held(path)]
        idle = await asyncio.to_thread(lambda: sum(map(held_bytes, found)))
        if (free := free_bytes(self._folder) - kept + idle) < needed:
            held = await asyncio.to_thread(held_bytes, self._folder)
            raise no_room(needed, free, held - idle)
        for path in sorted(found, key=used_at):
            if free_bytes(self._folder) - kept < needed:
                await self._remove(path)

    async def _download(
        self,
        target: Path,
        files: list[models_pb2.FileUrl],
        spared: float,
        renewed: Renewed | None,
    ) -> None:
        draft = target.with_name(f"{target.name}.part")
        if draft not in self._begun:
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
            self._begun.add(draft)
        await asyncio.to_thread(shutil.rmtree, target, ignore_errors=True)
        try:
            await self._make_room(needed_bytes(missing(draft, files)), spared)
            folder = private_folder(draft)
            await fetch_files(files, folder, self._patience_seconds, renewed, self._local)
            draft.rename(target)
        except (DiskError, OSError):
            # What is there may be the room that others wait for.
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
            raise
        self._begun.discard(draft)
        log.info("model_downloaded", version=target.name, files=len(files))
