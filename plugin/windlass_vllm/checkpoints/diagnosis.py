"""Examination of a folder by its bytes: every block of every file is read and hashed."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from windlass_vllm.checkpoints.blocks import differing
from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.disk import lock
from windlass_vllm.checkpoints.folder import (
    check_entries,
    file_digest,
    file_hashes,
    read_shards,
)
from windlass_vllm.checkpoints.log import ReadLog, read_log
from windlass_vllm.checkpoints.settling import newest_tables, staged


class FolderDiagnosis(msgspec.Struct, kw_only=True):
    """The state of a checkpoint's folder."""

    version: str
    """The newest version that is on the disk."""
    generation: int
    settled: str
    """The version that the files were last made to be."""
    unsettled: int
    """Versions that are in the log alone."""
    torn: int
    """Bytes of a write that did not end, which the next opening drops."""
    damaged: dict[str, list[int]]
    """Blocks by tensor that are of no version; of a file beside the weights, none by number."""

    @property
    def whole(self) -> bool:
        """True where every byte is that of the newest version, or the log makes it so."""
        return not self.damaged


def diagnose_folder(folder: Path) -> FolderDiagnosis:
    """Says what is in a folder, and writes nothing; raises Refused."""
    held = lock(folder, shared=True)
    try:
        return _examine(folder.resolve())
    finally:
        os.close(held)


def sync_folder(folder: Path, protected: Sequence[Path] = ()) -> tuple[FolderDiagnosis, int]:
    """Finishes or drops what a crash left, and checks all digests; raises Refused.

    Returns the bytes that were written, too.
    """
    with BlockCheckpoint(folder, protected=protected) as checkpoint:
        return _examine(checkpoint.folder), checkpoint.recovered


def _examine(folder: Path) -> FolderDiagnosis:
    log = read_log(folder)
    check_entries(folder, log.base)
    shards = read_shards(folder, log.base)
    damaged: dict[str, list[int]] = {}
    for number, (shard, table) in enumerate(zip(shards, newest_tables(log, shards), strict=True)):
        logged = _logged(log, number)
        source = folder / staged(shard)
        if not source.exists() or not _rewritten(log, number):
            source = folder / shard.name
        for place in differing(file_hashes(source, shard), table):
            if place not in logged:
                tensor = shard.tensor(place)
                damaged.setdefault(tensor.name, []).append(place - tensor.first_block)
    for name, kept in log.base.files.items():
        path = folder / name
        if path.stat().st_size != kept.size or file_digest(path) != kept.digest:
            damaged[name] = []
    return FolderDiagnosis(
        version=log.version,
        generation=log.base.generation + len(log.deltas),
        settled=log.base.version,
        unsettled=len(log.deltas),
        torn=log.torn,
        damaged=damaged,
    )


def _rewritten(log: ReadLog, number: int) -> bool:
    return any(one.shard == number for each in log.deltas for one in each.delta.rewritten)


def _logged(log: ReadLog, number: int) -> set[int]:
    """The blocks of a file that the log will write, whatever is there now."""
    found: set[int] = set()
    for each in log.deltas:
        if any(one.shard == number for one in each.delta.rewritten):
            found.clear()
        for run in each.delta.runs:
            if run.shard == number:
                found.update(range(run.first, run.first + len(run.hashes) // 8))
    return found
