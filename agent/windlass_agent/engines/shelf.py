"""The folder of one engine's adapters, the only adapters that it can read."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from windlass.confinement import Confinement


@dataclass(frozen=True)
class Shelf:
    """A folder that is mounted into the engine at its start."""

    folder: Path
    confinement: Confinement

    def put(self, adapter: Path) -> Path:
        """Links a folder of the cache into the shelf; raises OSError."""
        shown = self.folder / adapter.name
        if not shown.exists():
            draft = self.folder / f"{adapter.name}.part"
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(adapter, draft, copy_function=os.link)
            self.confinement.show(draft)
            draft.rename(shown)
        return shown

    def version_of(self, folder: str) -> str:
        """The version that an engine has from a folder; empty where it is none of the shelf's."""
        found = Path(folder)
        return found.name if found.parent == self.folder and found.name in self.versions() else ""

    def versions(self) -> frozenset[str]:
        """The folders that it shows now."""
        try:
            return frozenset(path.name for path in self.folder.iterdir())
        except OSError:
            # The first adapter makes it.
            return frozenset()

    def size(self, version_id: str) -> int:
        """Bytes of a folder that it shows, whether the cache has them still or not."""
        files = (self.folder / version_id).rglob("*")
        return sum(path.stat().st_size for path in files if path.is_file())

    def drop(self, version_id: str) -> None:
        """Removes a folder's links; the cache's own stay."""
        shutil.rmtree(self.folder / version_id, ignore_errors=True)
