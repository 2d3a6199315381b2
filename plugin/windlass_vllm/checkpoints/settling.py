"""Putting what the log holds into the files: once after a crash, or as often as one likes.

Files are written only after the log that says how was synced, and a log is replaced only after the
files were. So a crash at any point leaves a log from which the rest can be done again.
"""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from windlass_vllm.checkpoints.blocks import CHUNK, from_bytes
from windlass_vllm.checkpoints.disk import Disk
from windlass_vllm.checkpoints.log import DRAFT, FOLDER, LOG, ReadLog, base_content
from windlass_vllm.checkpoints.records import Base, Delta, ShardTable
from windlass_vllm.checkpoints.shards import Shard
from windlass_vllm.refusal import Refused

Tables = list["array[int]"]
_HASH = 8


def staged(shard: Shard) -> str:
    """Returns where a file that was written whole waits for its place."""
    return f"{FOLDER}/{shard.name}"


def newest_tables(log: ReadLog, shards: Sequence[Shard]) -> Tables:
    """Returns the hashes of the newest version's blocks; raises Refused for a lying log."""
    tables = [from_bytes(table.hashes) for table in log.base.shards]
    for logged in log.deltas:
        apply(logged.delta, tables)
    if [len(table) for table in tables] != [shard.blocks for shard in shards]:
        raise Refused("log_damaged", "a delta of the log is of other files")
    return tables


def apply(delta: Delta, tables: Tables) -> None:
    """Puts a delta's hashes into the tables; raises Refused for blocks that are not there."""
    numbers = [run.shard for run in delta.runs] + [one.shard for one in delta.rewritten]
    if max(numbers, default=0) >= len(tables):
        raise Refused("log_damaged", "a delta of the log is of other files")
    for whole in delta.rewritten:
        tables[whole.shard] = from_bytes(whole.hashes)
    for run in delta.runs:
        table, hashes = tables[run.shard], from_bytes(run.hashes)
        if run.first + len(hashes) > len(table):
            raise Refused("log_damaged", "a delta of the log is of other blocks")
        table[run.first : run.first + len(hashes)] = hashes


def recover(disk: Disk, log: ReadLog, shards: Sequence[Shard]) -> int:
    """Finishes what was logged and drops the rest; returns the bytes that were written.

    The log has no deltas then, and nothing behind its base.
    """
    if log.torn:
        # If this is lost, the next opening finds the same again.
        disk.truncate(LOG, log.end)
    waiting = {shards[one.shard].name for each in log.deltas for one in each.delta.rewritten}
    for shard in shards:
        if shard.name not in waiting:
            disk.remove(staged(shard))
    disk.remove(DRAFT)
    return settle(disk, log, shards, newest_tables(log, shards))


def settle(disk: Disk, log: ReadLog, shards: Sequence[Shard], tables: Tables) -> int:
    """Makes the files those of the newest version; returns the bytes that were written."""
    if not log.deltas:
        return 0
    written, touched, renamed = 0, set[str](), False
    with (disk.folder / LOG).open("rb") as file:
        for number, logged in enumerate(log.deltas):
            for whole in logged.delta.rewritten:
                renamed |= _put(disk, shards[whole.shard])
            superseded = {
                one.shard for later in log.deltas[number + 1 :] for one in later.delta.rewritten
            }
            file.seek(logged.offset)
            for run in logged.delta.runs:
                shard, end = shards[run.shard], run.first + len(run.hashes) // _HASH
                begin = shard.offset(run.first)
                if run.shard in superseded:
                    file.seek(shard.offset(end) - begin, 1)
                    continue
                written += _copy(file, disk, shard.name, begin, shard.offset(end))
                touched.add(shard.name)
    for name in sorted(touched):
        disk.sync(name)
    if renamed:
        disk.sync_folder(".")
        disk.sync_folder(FOLDER)
    return written + replace_base(disk, _base(log, shards, tables))


def replace_base(disk: Disk, base: Base) -> int:
    """Replaces the log by one of a base alone; returns its bytes."""
    content, _ = base_content(base)
    disk.remove(DRAFT)
    disk.write(DRAFT, 0, content)
    disk.sync(DRAFT)
    disk.rename(DRAFT, LOG)
    disk.sync_folder(FOLDER)
    return len(content)


def _base(log: ReadLog, shards: Sequence[Shard], tables: Tables) -> Base:
    newest = log.deltas[-1].delta
    records = [
        ShardTable(shard.name, shard.size, shard.header_digest, table.tobytes())
        for shard, table in zip(shards, tables, strict=True)
    ]
    return msgspec.structs.replace(
        log.base, generation=newest.generation, version=newest.version, shards=records
    )


def _put(disk: Disk, shard: Shard) -> bool:
    """Puts a whole file in its place, unless a settling that broke off has done it."""
    waiting: Path = disk.folder / staged(shard)
    if not waiting.exists():
        return False
    disk.rename(staged(shard), shard.name)
    return True


def _copy(file: BinaryIO, disk: Disk, name: str, begin: int, end: int) -> int:
    for at in range(begin, end, CHUNK):
        disk.write(name, at, file.read(min(CHUNK, end - at)))
    return end - begin
