"""The adapters of one engine, where it may read them: an engine sees no folder of another's."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from windlass.confinement import Confinement


@dataclass(frozen=True)
class Shelf:
    """A folder that the engine saw when it started."""

    folder: Path
    confinement: Confinement

    def put(self, adapter: Path) -> Path:
        """The engine's link to a folder of the cache; raises OSError."""
        shown = self.folder / adapter.name
        if not shown.exists():
            draft = self.folder / f"{adapter.name}.part"
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(adapter, draft, copy_function=os.link)
            self.confinement.show(draft)
            draft.rename(shown)
        return shown
