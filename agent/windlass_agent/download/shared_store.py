"""Versions of models on a volume that pods of several nodes share.

Nobody waits for a lock that a dead pod could hold. Every fetch writes to a folder of its own,
which one rename makes the version's; a lease only keeps others from doing the same work. Whoever
reads a version has a mark beside it, whose time it renews; without a fresh mark a version may go.
Ages are measured by the volume's own clock, so that clocks of nodes may differ.
"""

import asyncio
import contextlib
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass_agent.download.intact import is_intact
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

log = telemetry.logger("download")
BEAT_SECONDS = 30.0
# Of a mark, and of a lease, that nobody renews any more.
STALE_SECONDS = 900.0
LEASE_SECONDS = 120.0
LOOK_SECONDS = 1.0
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
        mark = self._mark(version_id)
        was_held = mark in self._held
        try:
            _make(self._folder / _MARKS)
            # Before it is looked for: whoever removes one looks for marks last.
            mark.touch(mode=0o600)
            self._held.add(mark)
            while not (await self._find_or_bring(target, wanted, renewed) and _use(target, mark)):
                pass
        except BaseException as error:
            if not was_held:
                self._release(mark)
            if isinstance(error, OSError):
                raise storage_error(error) from error
            raise
        return target

    def path(self, version_id: str) -> Path:
        """The folder of a version, there or not; raises DownloadError for what is no id."""
        checked(version_id, ())
        return self._folder / version_id

    def draft_bytes(self, version_id: str) -> int:
        """Bytes that have come of a version that is not there yet, whoever brings it."""
        return sum(map(held_bytes, self._folder.glob(f".{version_id}.*{_PART}")))

    async def _find_or_bring(
        self, target: Path, wanted: list[models_pb2.FileUrl], renewed: Renewed | None
    ) -> bool:
        """Returns True once a version is there as listed, False if it is to be looked for again."""
        if await self._find(target, wanted):
            return True
        if self._lease(target.name):
            return await self._bring(target, wanted, renewed)
        await self._wait(target.name)
        return False

    async def _find(self, target: Path, wanted: list[models_pb2.FileUrl]) -> bool:
        """Returns True for a version that is there as listed; one that differs is put aside.

        Raises DownloadError for one that differs and is in use, OSError for one that is not read.
        """
        try:
            if await asyncio.to_thread(is_intact, target, wanted):
                return True
        except FileNotFoundError:
            # Not there, or not any more.
            return False
        log.error("stored_model_differs", version=target.name)
        if self._take_aside(target, self._is_used) is None and self._is_used(target.name):
            raise DownloadError(
                "The model's files on the shared volume differ from its list, and other engines "
                "use them. They are brought anew once those engines have ended."
            )
        return False

    async def _bring(
        self, target: Path, wanted: list[models_pb2.FileUrl], renewed: Renewed | None
    ) -> bool:
        """Downloads a version under the lease; returns False if another one was there first."""
        draft = self._own(target.name, _PART)
        self._drafts.add(draft)
        try:
            await asyncio.to_thread(self._make_room, needed_bytes(missing(draft, wanted)))
            _make(draft)
            await fetch_files(wanted, draft, self._patience_seconds, renewed)
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
        if (aside := self._take_aside(target, self._is_held)) is not None:
            shutil.rmtree(aside, ignore_errors=True)
            log.info("stored_model_removed", version=target.name)

    def _take_aside(self, target: Path, held: Callable[[str], bool]) -> Path | None:
        """Takes a version out of sight; returns None for one that is held, or not there."""
        if held(target.name):
            return None
        aside = self._put_aside(target)
        # Whoever marked it before it went may have found it.
        if aside is not None and held(target.name):
            with contextlib.suppress(OSError):
                aside.rename(target)
            return None
        return aside

    def _put_aside(self, target: Path) -> Path | None:
        """Takes a version out of sight; its files stay for whoever has them open."""
        aside = self._folder / f".{target.name}.{uuid.uuid4().hex}{_GONE}"
        try:
            target.rename(aside)
            os.utime(aside)
        except FileNotFoundError:
            return None
        return aside

    def _is_held(self, version_id: str) -> bool:
        """Returns True if somebody holds a version, ourselves included."""
        return any(True for _ in self._holders(version_id))

    def _is_used(self, version_id: str) -> bool:
        """Returns True if others have found a version, and do not only look for it."""
        return bool(self._uses(version_id).keys() - {self._holder})

    def _uses(self, version_id: str) -> dict[str, float]:
        """Returns since when, by the volume's clock, each holder has used a version."""
        found = {}
        for holder in self._holders(version_id):
            with contextlib.suppress(FileNotFoundError, ValueError):
                mark = self._folder / _MARKS / f"{version_id}.{holder}"
                found[holder] = float(mark.read_text())
        return found

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
            uses = self._uses(version)
            if path.suffix == _GONE:
                if all(since > used_at(path) for since in uses.values()):
                    shutil.rmtree(path, ignore_errors=True)
            elif self._age(path) > STALE_SECONDS:
                # At once, so that no half of it becomes a version if its owner lives after all.
                self._remove_aside(path)

    def _remove_aside(self, draft: Path) -> None:
        aside = draft.with_suffix(_GONE)
        with contextlib.suppress(FileNotFoundError):
            draft.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _make(folder: Path) -> None:
    """Makes a folder; volumes may map its owner, and permit no change of its mode."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _use(target: Path, mark: Path) -> bool:
    """Notes in a mark since when its holder uses a version; returns False for one that went."""
    if not (found := mark.stat()).st_size:
        mark.write_text(str(found.st_mtime))
    try:
        os.utime(target)
    except FileNotFoundError:
        return False
    return True
