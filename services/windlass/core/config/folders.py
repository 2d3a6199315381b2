"""Folders that a process is told to keep its data in."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

_PATTERN = frozenset("*?[]")


def _without_pattern(path: Path) -> Path:
    found = sorted(_PATTERN & set(str(path.absolute())))
    if found:
        raise ValueError(
            f"{path.absolute()} contains {' and '.join(found)}, which the library that reads "
            "training data takes for a pattern. Choose a folder without * ? [ ] in its path."
        )
    return path


# Absolute or relative to the working folder, which must not hold a pattern either.
DataFolder = Annotated[Path, AfterValidator(_without_pattern)]
