"""Versions of models on a volume that pods of several nodes share.

Nobody waits for a lock that a dead pod could hold. Every fetch writes to a folder of its own,
which one rename makes the version's; a lease only keeps others from doing the same work. Whoever
reads a version has a mark beside it, whose time it renews; without a fresh mark a version may go.
Ages are measured by the volume's own clock, so that clocks of nodes may differ.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass_agent.download.room import free_bytes, held_bytes, needed_bytes, no_room, used_at
from windlass_agent.download.transfer import (
    PATIENCE_SECONDS,
    DiskError,
    DownloadError,
    Renewed,
    checked,
    fetch_files,
    is_whole,
    missing,
    storage_error,
)
from windlass_agent.folders import private_folder

log = telemetry.logger("download")
BEAT_SECONDS = 30.0
# Of a mark, and of a lease, that nobody renews any more.
STALE_SECONDS = 900.0
LEASE_SECONDS = 120.0
LOOK_SECONDS = 1.0
# Of a version that is found, so many bytes are read and compared, the smallest files first.
CHECKED_BYTES = 16 * 2**30
_MARKS = ".marks"
_PART, _GONE = ".part", ".gone"


class SharedStore:
    """`<folder>/<version id>/`: complete, or not there. One process holds versions by it.

    `most` is how many bytes all versions may take together; 0: what the volume has.
    """

    def __init__(self, folder: Path, *, most: int = 0, patience_seconds: float = PATIENCE_SECONDS):
        self._folder = folder
        self._most = most
        self._patience_seconds = patience_seconds
        self._holder = uuid.uuid4().hex
        self._held: set[Path] = set()
        # What came whole of versions that are not there yet.
        self._drafts: set[Path] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Keeps every version that is fetched in the block until its end."""
        beating = asyncio.create_task(self._beat())
        try:
            yield
        finally:
            beating.cancel()
            for path in self._held:
                path.unlink(missing_ok=True)
            self._held.clear()
            for draft in tuple(self._drafts):
                self._drop(draft)

    async def fetch(
        self,
        version_id: str,
        files: Iterable[models_pb2.FileUrl],
        *,
        renewed: Renewed | None = None,
    ) -> Path:
        """The folder of a version, found or downloaded, and held from now on.

        Files that came whole are kept for the next call. Raises DownloadError.
        """
        wanted = checked(version_id, files)
        target = self._folder / version_id
        try:
            private_folder(self._folder / _MARKS)
            # Before it is looked for: whoever removes one looks for marks last.
            mark = self._mark(version_id)
            mark.touch(mode=0o600)
            self._held.add(mark)
            while not await self._find(target, wanted):
                if not self._lease(version_id):
                    await self._wait(version_id)
                elif await self._bring(target, wanted, renewed):
                    break
            os.utime(target)
        except OSError as error:
            raise storage_error(error) from error
        return target

    async def _find(self, target: Path, wanted: list[models_pb2.FileUrl]) -> bool:
        """Returns True for a version that is there as listed; one that differs is put aside."""
        if not target.exists():
            return False
        if await asyncio.to_thread(_is_intact, target, wanted):
            return True
        log.error("stored_model_differs", version=target.name)
        self._put_aside(target)
        return False

    async def _bring(
        self, target: Path, wanted: list[models_pb2.FileUrl], renewed: Renewed | None
    ) -> bool:
        """Downloads a version under the lease; returns False if another one was there first."""
        draft = self._own(target.name, _PART)
        self._drafts.add(draft)
        try:
            await asyncio.to_thread(self._make_room, needed_bytes(missing(draft, wanted)))
            await fetch_files(wanted, private_folder(draft), self._patience_seconds, renewed)
            return await self._publish(draft, target, wanted)
        except (DiskError, OSError):
            # What is there may be the room that others wait for.
            await asyncio.to_thread(self._drop, draft)
            raise
        finally:
            self._release(self._lease_of(target.name))

    async def _publish(self, draft: Path, target: Path, wanted: list[models_pb2.FileUrl]) -> bool:
        """Makes a draft the version; returns False if another one was there first."""
        if not is_whole(draft, wanted):
            raise DownloadError("others removed files while they came; they are brought again")
        try:
            draft.rename(target)
        except OSError:
            if not target.exists():
                raise
            await asyncio.to_thread(self._drop, draft)
            return False
        self._drafts.discard(draft)
        log.info("model_downloaded", version=target.name, files=len(wanted))
        return True

    def _drop(self, draft: Path) -> None:
        self._drafts.discard(draft)
        shutil.rmtree(draft, ignore_errors=True)

    def _lease(self, version_id: str) -> bool:
        """Returns True if this process alone should download a version."""
        path = self._lease_of(version_id)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        self._held.add(path)
        return True

    async def _wait(self, version_id: str) -> None:
        """Waits for whoever downloads a version; ends the lease of one that is no more."""
        path = self._lease_of(version_id)
        await asyncio.sleep(LOOK_SECONDS)
        if self._age(path) > LEASE_SECONDS:
            path.unlink(missing_ok=True)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            for path in tuple(self._held):
                try:
                    await asyncio.to_thread(path.touch, mode=0o600)
                except OSError as error:
                    log.warning("store_mark_not_renewed", error=str(error))
            for draft in tuple(self._drafts):
                # Not made anew: others may have removed it.
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(os.utime, draft)

    def _release(self, path: Path) -> None:
        self._held.discard(path)
        path.unlink(missing_ok=True)

    def _mark(self, version_id: str) -> Path:
        return self._folder / _MARKS / f"{version_id}.{self._holder}"

    def _lease_of(self, version_id: str) -> Path:
        return self._folder / _MARKS / f"{version_id}.lease"

    def _own(self, version_id: str, suffix: str) -> Path:
        return self._folder / f".{version_id}.{self._holder}{suffix}"

    def _age(self, path: Path) -> float:
        """Seconds since a file was touched, by the volume's clock; 0 for one that is not there."""
        clock = self._folder / _MARKS / f".{self._holder}"
        try:
            clock.touch(mode=0o600)
            return clock.stat().st_mtime - path.stat().st_mtime
        except FileNotFoundError:
            return 0.0
        finally:
            clock.unlink(missing_ok=True)

    def _make_room(self, needed: int) -> None:
        """Removes what nobody holds, the oldest first; raises DownloadError without room.

        Where that would not be enough, it removes none.
        """
        self._sweep()
        found = [path for path in self._versions() if not self._is_held(path.name)]
        idle = sum(map(held_bytes, found))
        if (room := self._room() + idle) < needed:
            raise no_room(needed, room, held_bytes(self._folder) - idle)
        for path in found:
            if self._room() < needed:
                self._remove(path)
        # Somebody may have come to hold one.
        if (room := self._room()) < needed:
            raise no_room(needed, room, held_bytes(self._folder))

    def _room(self) -> int:
        free = free_bytes(self._folder)
        return min(free, self._most - held_bytes(self._folder)) if self._most else free

    def _versions(self) -> list[Path]:
        """Versions that are there, the one first that was used longest ago."""
        found = [path for path in self._folder.iterdir() if not path.name.startswith(".")]
        return sorted(found, key=used_at)

    def _remove(self, target: Path) -> None:
        """Removes a version unless somebody holds it."""
        if self._is_held(target.name):
            return
        aside = self._put_aside(target)
        if aside is None:
            return
        # Whoever marked it before it went may have found it.
        if self._is_held(target.name):
            with contextlib.suppress(OSError):
                aside.rename(target)
            return
        shutil.rmtree(aside, ignore_errors=True)
        log.info("stored_model_removed", version=target.name)

    def _put_aside(self, target: Path) -> Path | None:
        """Takes a version out of sight; its files stay for whoever has them open."""
        aside = self._folder / f".{target.name}.{uuid.uuid4().hex}{_GONE}"
        try:
            target.rename(aside)
        except FileNotFoundError:
            return None
        return aside

    def _is_held(self, version_id: str) -> bool:
        return any(holder != self._holder for holder in self._holders(version_id))

    def _holders(self, version_id: str) -> Iterator[str]:
        """Yields holders of a version; removes marks that nobody renews."""
        for path in tuple((self._folder / _MARKS).glob(f"{version_id}.*")):
            name, _, holder = path.name.rpartition(".")
            if name != version_id or holder == "lease":
                continue
            if self._age(path) > STALE_SECONDS:
                path.unlink(missing_ok=True)
            else:
                yield holder

    def _sweep(self) -> None:
        """Removes what killed processes left, once nobody holds the version."""
        for path in tuple(self._folder.iterdir()):
            if not path.name.endswith((_PART, _GONE)):
                continue
            version, _, _ = path.stem.removeprefix(".").rpartition(".")
            others = set(self._holders(version)) - {self._holder}
            if path.suffix == _GONE:
                if not others:
                    shutil.rmtree(path, ignore_errors=True)
            elif self._age(path) > STALE_SECONDS:
                # At once, so that no half of it becomes a version if its owner lives after all.
                self._remove_aside(path)

    def _remove_aside(self, draft: Path) -> None:
        aside = draft.with_suffix(_GONE)
        with contextlib.suppress(FileNotFoundError):
            draft.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _is_intact(folder: Path, wanted: list[models_pb2.FileUrl]) -> bool:
    """Compares a folder with its list: names, sizes, and digests as far as `CHECKED_BYTES`."""
    found = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    there = {str(path.relative_to(folder)) for path in found if not path.is_symlink()}
    if (
        len(found) != len(wanted)
        or there != {file.path for file in wanted}
        or not is_whole(folder, wanted)
    ):
        return False
    left = CHECKED_BYTES
    for file in sorted(wanted, key=lambda one: one.bytes):
        left -= file.bytes
        if left >= 0:
            with (folder / file.path).open("rb") as content:
                if hashlib.file_digest(content, "sha256").digest() != file.sha256:
                    return False
    return True
