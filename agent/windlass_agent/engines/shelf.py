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
