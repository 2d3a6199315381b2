"""Media of published versions: the object store, a shared volume, or one machine's memory."""

import asyncio
import hashlib
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from windlass.core.config.tuning import PublishingSection
from windlass.core.objects import ObjectStore
from windlass.weight_objects import ObjectMedium
from windlass.weight_versions import FolderMedium, SharedMemory, VersionMedium
from windlass.weight_versions.media.shared_memory import segment
from windlass.weight_versions.writing import DATA, MANIFEST

# Folders that others keep beside these are left alone.
_VOLUME = "windlass-weights-"


def name_of(run_id: str) -> str:
    """The name of a run's versions in any medium; a run's own id may have other signs."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:32]


def keys_of(project_id: str, run_id: str, version: int) -> dict[str, str]:
    """The keys of a version's files in the object store, by their names."""
    prefix = f"{_prefix(project_id, run_id)}{version:016}/"
    return {name: prefix + name for name in (DATA, MANIFEST)}


class PublishingMedia:
    """One medium for each run, of the kind that the operator chose."""

    def __init__(self, settings: PublishingSection, objects: ObjectStore, scratch: Path):
        """`scratch` has what is written meanwhile."""
        self._settings = settings
        self._objects = objects
        self._scratch = scratch

    def folder(self, run_id: str) -> str:
        """The name of the folder with a run's versions; empty where the store has them."""
        kind = self._settings.medium
        return _VOLUME + name_of(run_id) if kind in ("volume", "segment") else ""

    def open(self, project_id: str, run_id: str) -> VersionMedium:
        """The medium to write a run's versions to; raises WeightsRefused `medium_in_use`."""
        self._scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._settings.medium == "segment":
            return SharedMemory(name_of(run_id))
        if self._settings.medium == "volume":
            folder = self._volume / self.folder(run_id)
            folder.mkdir(mode=0o700, exist_ok=True)
            return FolderMedium(folder, self._scratch)
        return ObjectMedium(self._objects, _prefix(project_id, run_id), self._scratch)

    @property
    def begins_empty(self) -> bool:
        """True where a new writer's medium has nothing of the writer's before it."""
        return self._settings.medium == "segment"

    def lost(self, run_ids: Sequence[str]) -> list[str]:
        """The runs whose folder is not there any more, as after a restart of the machine."""
        return [one for one in run_ids if (folder := self._root(one)) and not folder.is_dir()]

    async def remove(self, project_id: str, run_id: str) -> None:
        """Removes all versions of a run that nobody writes."""
        if folder := self._root(run_id):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        else:
            await self._objects.delete_prefix(_prefix(project_id, run_id))

    async def sweep(self, run_ids: Collection[str]) -> None:
        """Removes the folders on a volume of all other runs, as of a project that was erased."""
        if self._settings.medium != "volume":
            return
        kept = {self.folder(one) for one in run_ids}
        for path in await asyncio.to_thread(lambda: list(self._volume.glob(_VOLUME + "*"))):
            if path.name not in kept:
                await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)

    def _root(self, run_id: str) -> Path | None:
        if self._settings.medium == "segment":
            return segment(name_of(run_id))
        name = self.folder(run_id)
        return self._volume / name if name else None

    @property
    def _volume(self) -> Path:
        if (root := self._settings.root) is None:
            raise ValueError("medium volume needs a folder")
        return root


def _prefix(project_id: str, run_id: str) -> str:
    return f"tuning/{project_id}/versions/{name_of(run_id)}/"
