"""Folders of checkpoints in parts of files: for processes that see no folder of the caller's."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from windlass.api.trainer.v1 import trainer_pb2 as pb

PART_BYTES = 2**20
# A state of the largest models has a shard for each 4 GiB.
MAX_FILES = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


class UnfitParts(ValueError):
    """Parts that are no files of a folder, or more than it may have."""


async def parts_of(folder: Path, path: str = "") -> AsyncIterator[pb.FilePart]:
    """Yields the files of a folder, for a call that names the folder by `path`.

    Raises UnfitParts where there is none.
    """
    if not await asyncio.to_thread(folder.is_dir):
        raise UnfitParts(f"{folder.name} is no folder")
    yield pb.FilePart(path=path)
    for file in sorted(await asyncio.to_thread(_files, folder)):
        name = file.name
        with file.open("rb") as content:
            while True:
                read = await asyncio.to_thread(content.read, PART_BYTES)
                if not read and not name:
                    break
                yield pb.FilePart(name=name, content=read)
                name = ""


async def written(
    first: pb.FilePart,
    parts: AsyncIterator[pb.FilePart],
    folder: Path,
    *,
    max_bytes: int | None = None,
) -> None:
    """Makes a folder of the parts of a call; nothing is left of one that breaks off.

    What is there, such as the rest of an earlier try, gives way. Raises UnfitParts.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=".draft-", dir=folder.parent))
    try:
        await _write(first, parts, draft, max_bytes)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        draft.rename(folder)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
        raise


async def _write(
    first: pb.FilePart, parts: AsyncIterator[pb.FilePart], folder: Path, max_bytes: int | None
) -> None:
    names: set[str] = set()
    size = 0
    current = first.name
    part = first
    while True:
        if part.name:
            current = part.name
            if not _NAME.fullmatch(current) or current in names or len(names) >= MAX_FILES:
                raise UnfitParts("a name of a file is not valid, comes twice, or is one too many")
            names.add(current)
        size += len(part.content)
        if max_bytes is not None and size > max_bytes:
            raise UnfitParts(f"the files have more than {max_bytes} bytes")
        if current:
            await asyncio.to_thread(_append, folder / current, part.content)
        elif part.content:
            raise UnfitParts("content belongs to no file")
        try:
            part = await anext(parts)
        except StopAsyncIteration:
            return


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
