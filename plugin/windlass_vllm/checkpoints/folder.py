"""A checkpoint's folder: what may be in it, and how one is made of a model's."""

import fcntl
import os
import shutil
import stat
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import xxhash

from windlass_vllm.checkpoints.blocks import CHUNK, from_bytes, hashes_of
from windlass_vllm.checkpoints.disk import Disk
from windlass_vllm.checkpoints.log import DRAFT, FOLDER, LOG, base_content
from windlass_vllm.checkpoints.records import (
    FORMAT,
    Base,
    KeptFile,
    ShardTable,
    check_version,
)
from windlass_vllm.checkpoints.shards import Shard, read_shard
from windlass_vllm.refusal import Refused

_INDEX = "model.safetensors.index.json"
_WEIGHTS = ".safetensors"
# Weights in another format would be those of an old version.
_KEPT = (".json", ".txt", ".model", ".jinja", ".tiktoken")
_LARGEST_KEPT = 256 * 2**20
_LARGEST_INDEX = 64 * 2**20
# A folder of the Hugging Face cache is named so.
_HUB = "models--"
_CLONE = 0x40049409  # FICLONE: the target shares the source's extents until one is written.


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def create_checkpoint(
    source: Path, target: Path, version: str, *, protected: Sequence[Path] = ()
) -> Path:
    """Makes a new folder of a model's files, whole or not at all; raises Refused.

    `protected` are folders of engines and caches, beside the source and Hugging Face's cache: no
    checkpoint may lie in them. Files are cloned where the file system can, and else copied.
    """
    check_version(version)
    source = source.resolve()
    target = target.parent.resolve() / target.name
    if not source.is_dir():
        raise Refused("unreadable_model", f"{source} is no folder")
    check_own(target, (source, *protected))
    if source.is_relative_to(target):
        raise Refused("folder_protected", f"{target} holds the model's folder")
    if os.path.lexists(target):
        raise Refused("folder_exists", f"{target} is there already")
    names = _weights(source)
    with _draft(target) as draft:
        (draft / FOLDER).mkdir()
        for name in names:
            _copy(source / name, draft / name)
        kept = {path.name: _keep(path, draft) for path in sorted(_beside(source))}
        shards = [_table(draft / name) for name in names]
        _check_distinct(read_shard(draft / name) for name in names)
        base = Base(format=FORMAT, generation=0, version=version, shards=shards, files=kept)
        with Disk(draft) as disk:
            disk.write(LOG, 0, base_content(base)[0])
            for name in (LOG, *names, *kept):
                disk.sync(name)
            for folder in (FOLDER, "."):
                disk.sync_folder(folder)
    return target


def check_own(folder: Path, protected: Iterable[Path] = ()) -> None:
    """Raises Refused for a folder, links resolved, in one that belongs to somebody else."""
    resolved = folder.resolve()
    if any(part.startswith(_HUB) for part in resolved.parts):
        raise Refused("folder_protected", f"{folder} lies in a cache of models")
    for other in protected:
        if resolved.is_relative_to(other.resolve()):
            raise Refused("folder_protected", f"{folder} lies in {other}")


def check_entries(folder: Path, base: Base) -> None:
    """Raises Refused unless a folder holds the files of a checkpoint, and nothing else."""
    weights = {table.name for table in base.shards}
    if not all(_plain(name) for name in (*weights, *base.files)):
        raise Refused("log_damaged", "the log names what is no file of the folder")
    _check_folder(folder, weights | set(base.files), {FOLDER})
    inner = {name.removeprefix(f"{FOLDER}/") for name in (LOG, DRAFT)} | weights
    _check_folder(folder / FOLDER, inner, set())
    for name in sorted(weights | set(base.files)):
        if not (folder / name).exists():
            raise Refused("block_damaged", f"{name} is missing")


def read_shards(folder: Path, base: Base) -> list[Shard]:
    """Reads the headers of a checkpoint's files; raises Refused if one is not as it was made."""
    shards = []
    for table in base.shards:
        shard = read_shard(folder / table.name)
        if (shard.size, shard.header_digest) != (table.size, table.header):
            raise Refused("invalid_header", f"{table.name} has another header than was kept")
        if len(table.hashes) != 8 * shard.blocks:
            raise Refused("log_damaged", f"the log has another number of blocks of {table.name}")
        shards.append(shard)
    return shards


def file_digest(path: Path) -> bytes:
    """Returns the hash of a file beside the weights."""
    found = xxhash.xxh3_128()
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            found.update(piece)
    return found.digest()


def file_hashes(path: Path, shard: Shard) -> "array[int]":
    """Returns the hash of each block of a file of weights."""
    hashes = from_bytes(b"")
    with path.open("rb") as file:
        for tensor in shard.tensors:
            file.seek(tensor.offset)
            for at in range(0, tensor.size, CHUNK):
                piece = file.read(min(CHUNK, tensor.size - at))
                hashes += hashes_of(memoryview(piece))
    return hashes


def _check_folder(folder: Path, files: set[str], folders: set[str]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if entry.is_symlink() or (stat.S_ISREG(status.st_mode) and status.st_nlink != 1):
                raise Refused("link_in_folder", f"{entry.path} is a link")
            regular, directory = stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode)
            if not (regular and entry.name in files) and not (directory and entry.name in folders):
                raise Refused("foreign_file", f"{entry.path} is not of the checkpoint")


def _weights(source: Path) -> list[str]:
    """The names of the files that hold the model, by its index if there is one."""
    index = source / _INDEX
    if index.exists():
        try:
            if index.stat().st_size > _LARGEST_INDEX:
                raise Refused("unreadable_model", f"{_INDEX} is too large")
            listed = msgspec.json.decode(index.read_bytes(), type=_Index).weight_map
        except (OSError, msgspec.MsgspecError) as error:
            raise Refused("unreadable_model", f"{_INDEX} cannot be read: {error}") from error
        names = set(listed.values())
    else:
        names = {path.name for path in source.iterdir() if path.suffix == _WEIGHTS}
    if not names or not all(_plain(name) and name.endswith(_WEIGHTS) for name in names):
        raise Refused("unreadable_model", f"{source} names no files of safetensors of its own")
    if missing := sorted(name for name in names if not (source / name).is_file()):
        raise Refused("unreadable_model", f"{missing[0]} is no file")
    return sorted(names)


def _beside(source: Path) -> Iterator[Path]:
    for path in source.iterdir():
        if path.suffix in _KEPT and path.is_file() and path.stat().st_size <= _LARGEST_KEPT:
            yield path


def _plain(name: str) -> bool:
    return 0 < len(name) < 200 and "/" not in name and "\0" not in name and name[0] != "."


def _keep(path: Path, draft: Path) -> KeptFile:
    copy = draft / path.name
    _copy(path, copy)
    return KeptFile(copy.stat().st_size, file_digest(copy))


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as read, target.open("xb") as written:
        try:
            fcntl.ioctl(written.fileno(), _CLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, written, CHUNK)


def _table(path: Path) -> ShardTable:
    shard = read_shard(path)
    hashes = file_hashes(path, shard).tobytes()
    return ShardTable(shard.name, shard.size, shard.header_digest, hashes)


def _check_distinct(shards: Iterable[Shard]) -> None:
    names = [tensor.name for shard in shards for tensor in shard.tensors]
    if len(names) != len(set(names)):
        raise Refused("unreadable_model", "two files hold a tensor of one name")


@contextmanager
def _draft(target: Path) -> Iterator[Path]:
    """Yields a folder that becomes `target` at the end; nothing is left if the block raises."""
    draft = None
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        yield draft
        draft.rename(target)
        with Disk(target.parent) as disk:
            disk.sync_folder()
    except OSError as error:
        raise Refused("not_written", f"{target} cannot be made: {error}") from error
    finally:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
