"""Live weights beside a table of hashes: what has changed, without reading a file."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from windlass_vllm.checkpoints.blocks import CHUNK, differing, from_bytes, hashes_of, pieces
from windlass_vllm.checkpoints.shards import BLOCK, Shard
from windlass_vllm.refusal import Refused

# A sample of a sixteenth; files with no tensor of such a length are compared whole.
_STRETCH = 16 * CHUNK
_NEARLY_ALL = 0.75


@dataclass(frozen=True)
class ShardChanges:
    """Blocks of one file that changed, in order."""

    blocks: list[int]
    tensors: dict[str, int]
    """Changed bytes by tensor, where there are any."""

    @property
    def size(self) -> int:
        """The changed bytes of all tensors."""
        return sum(self.tensors.values())


def check_weights(weights: Mapping[str, torch.Tensor], shards: Sequence[Shard]) -> None:
    """Raises Refused unless live weights are those of the files, by name, type and shape."""
    stored = {one.name: one for shard in shards for one in shard.tensors}
    live = {name: one for name, one in weights.items() if one.numel()}
    if odd := sorted(stored.keys() ^ live.keys()):
        raise Refused("tensors_differ", f"{odd[0]} is on one side alone")
    for name, one in stored.items():
        if (live[name].dtype, tuple(live[name].shape)) != (one.dtype, one.shape):
            raise Refused("tensors_differ", f"{name} is of another type or shape")


def compare(
    weights: Mapping[str, torch.Tensor], shard: Shard, table: "array[int]"
) -> ShardChanges | None:
    """Returns the changes of a file's tensors; None where nearly all of a sample has changed."""
    if _looks_dense(weights, shard, table):
        return None
    hashes = from_bytes(b"")
    for tensor in shard.tensors:
        for piece in pieces(weights[tensor.name], 0, tensor.size):
            hashes += hashes_of(piece)
    return changes_between(shard, table, hashes)


def changes_between(shard: Shard, old: "array[int]", new: "array[int]") -> ShardChanges:
    """Returns the blocks at which two tables of a file differ."""
    blocks: list[int] = []
    tensors: dict[str, int] = {}
    for tensor in shard.tensors:
        begin, end = tensor.first_block, tensor.first_block + tensor.blocks
        if changed := differing(new[begin:end], old[begin:end]):
            blocks += [begin + place for place in changed]
            cut = (tensor.blocks * BLOCK - tensor.size) * (blocks[-1] == end - 1)
            tensors[tensor.name] = len(changed) * BLOCK - cut
    return ShardChanges(blocks, tensors)


def _looks_dense(weights: Mapping[str, torch.Tensor], shard: Shard, table: "array[int]") -> bool:
    """Judges by a piece of each stretch; whole files are then compared as they are written."""
    seen = changed = 0
    for tensor in shard.tensors:
        for at in range(0, tensor.size - _STRETCH + 1, _STRETCH):
            first = tensor.first_block + at // BLOCK
            for piece in pieces(weights[tensor.name], at, at + CHUNK):
                hashes = hashes_of(piece)
                seen += len(hashes)
                changed += len(differing(hashes, table[first : first + len(hashes)]))
    return changed > _NEARLY_ALL * seen
