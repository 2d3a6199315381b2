"""Writing a delta: data that may still change are copied first, and hashed as they were copied."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import torch

from windlass_vllm.checkpoints.blocks import hashes_of, pieces, runs
from windlass_vllm.checkpoints.comparing import ShardChanges
from windlass_vllm.checkpoints.disk import Disk
from windlass_vllm.checkpoints.log import FOLDER, HEAD, LOG, LoggedDelta, frame_hash, frame_head
from windlass_vllm.checkpoints.records import BlockRun, Delta, RewrittenShard
from windlass_vllm.checkpoints.settling import staged
from windlass_vllm.checkpoints.shards import BLOCK, Shard
from windlass_vllm.refusal import Refused

# Of a file of which more has changed, all is written in sequence: that is faster, and once.
_DENSE = 0.5
Weights = Mapping[str, torch.Tensor]


@dataclass
class Appended:
    """A delta that is on the disk, and where the log goes on."""

    logged: LoggedDelta
    end: int
    digest: bytes
    written: int
    rewritten: list[str] = field(default_factory=list)


def append(
    disk: Disk,
    shards: Sequence[Shard],
    changes: Sequence[ShardChanges | None],
    weights: Weights,
    delta: Delta,
    at: int,
    before: bytes,
) -> Appended:
    """Writes and syncs a delta of these changes behind the log's end; raises Refused."""
    written = 0
    for number, (shard, change) in enumerate(zip(shards, changes, strict=True)):
        if change is None or change.size > _DENSE * shard.size:
            delta.rewritten.append(RewrittenShard(number, _rewrite(disk, shard, weights)))
            written += shard.size
        else:
            parts = _parts(shard, change)
            delta.runs += [BlockRun(number, first, bytes(8 * count)) for first, count in parts]
    if delta.rewritten:
        disk.sync_folder(FOLDER)
    end, digest = _frame(disk, shards, weights, delta, at, before)
    names = [shards[one.shard].name for one in delta.rewritten]
    return Appended(LoggedDelta(delta, at + HEAD), end, digest, written + end - at, names)


def _frame(
    disk: Disk, shards: Sequence[Shard], weights: Weights, delta: Delta, at: int, before: bytes
) -> tuple[int, bytes]:
    """Writes and syncs a frame, and fills in the hashes of its runs; returns its end and digest."""
    data = sum(_length(shards[run.shard], run) for run in delta.runs)
    # Hashes are of one length, so that the words have theirs before the hashes are known.
    length = len(msgspec.msgpack.encode(delta))
    found, place = frame_hash(before, data, length), at + HEAD
    for run in delta.runs:
        hashes = bytearray()
        for piece in _run_pieces(shards[run.shard], run, weights):
            copy = bytes(piece)
            hashes += hashes_of(memoryview(copy)).tobytes()
            disk.write(LOG, place, copy)
            found.update(copy)
            place += len(copy)
        run.hashes = bytes(hashes)
    words = msgspec.msgpack.encode(delta)
    found.update(words)
    if (len(words), place) != (length, at + HEAD + data):
        raise Refused("tensors_differ", "a live weight changed its size")
    disk.write(LOG, place, words)
    disk.write(LOG, at, frame_head(data, length, found.digest()))
    disk.sync(LOG)
    return place + length, found.digest()


def _rewrite(disk: Disk, shard: Shard, weights: Weights) -> bytes:
    """Writes and syncs a whole file beside the log; returns the hashes of its blocks."""
    disk.write(staged(shard), 0, shard.header)
    hashes = bytearray()
    for tensor in shard.tensors:
        place = tensor.offset
        for piece in pieces(weights[tensor.name], 0, tensor.size):
            copy = bytes(piece)
            hashes += hashes_of(memoryview(copy)).tobytes()
            disk.write(staged(shard), place, copy)
            place += len(copy)
    disk.sync(staged(shard))
    return bytes(hashes)


def _parts(shard: Shard, changes: ShardChanges) -> list[tuple[int, int]]:
    """Runs of changed blocks, none of them of two tensors."""
    ends = {tensor.first_block for tensor in shard.tensors}
    parts: list[tuple[int, int]] = []
    for first, count in runs(changes.blocks):
        begin = first
        for block in range(first + 1, first + count):
            if block in ends:
                parts.append((begin, block - begin))
                begin = block
        parts.append((begin, first + count - begin))
    return parts


def _length(shard: Shard, run: BlockRun) -> int:
    return shard.offset(run.first + len(run.hashes) // 8) - shard.offset(run.first)


def _run_pieces(shard: Shard, run: BlockRun, weights: Weights) -> Iterator[memoryview]:
    tensor = shard.tensor(run.first)
    begin = (run.first - tensor.first_block) * BLOCK
    end = min(begin + len(run.hashes) // 8 * BLOCK, tensor.size)
    return pieces(weights[tensor.name], begin, end)
