"""Files of programs that run, and may delete any of them meanwhile."""

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path) -> Iterator[Path]:
    """Yields every file below a folder, without those in folders that go meanwhile."""
    for found, _, names in os.walk(folder):
        for name in names:
            if (path := Path(found, name)).is_file():
                yield path


def files_with(folder: Path, text: bytes) -> list[Path]:
    """The files below a folder whose content has a text."""
    return [path for path in files_below(folder) if text in _content(path)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
