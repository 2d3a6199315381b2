"""Folders that appear whole or not at all."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windlass_agent.tuning.requests.refusal import TuningRefused

_CHUNK = 1 << 20


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields a folder that becomes `target` at the end of the block; nothing if it raises."""
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise TuningRefused("exists", f"{target.name} holds something already")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise _unwritten(error) from error
    try:
        yield draft
        for file in draft.iterdir():
            _sync(file)
        _sync(draft)
        draft.rename(target)
        _sync(target.parent)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise _unwritten(error) from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def size(folder: Path) -> int:
    """The bytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.iterdir())


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _unwritten(error: OSError) -> TuningRefused:
    return TuningRefused("not_written", f"the folder cannot be written: {error.strerror or error}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
