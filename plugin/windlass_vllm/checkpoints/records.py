"""Records of the log of a checkpoint."""

from typing import Annotated

import msgspec

from windlass_vllm.refusal import Refused

FORMAT = 1
Version = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**48)]


class ShardTable(msgspec.Struct, forbid_unknown_fields=True):
    """A file of weights: its header by digest, and the hash of each block."""

    name: str
    size: _Number
    header: bytes
    hashes: bytes


class KeptFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file beside the weights, such as config.json."""

    size: _Number
    digest: bytes


class Base(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A version that is in the files, and all that is known of them."""

    format: int
    generation: _Number
    version: Version
    shards: list[ShardTable]
    files: dict[str, KeptFile]


class BlockRun(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Blocks that lie side by side in a file; their bytes are in the delta's data."""

    shard: _Number
    first: _Number
    hashes: bytes


class RewrittenShard(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A file that was written whole, and lies in the log's folder until it is put in place."""

    shard: _Number
    hashes: bytes


class Delta(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The way from one version to the next."""

    generation: _Number
    version: Version
    runs: list[BlockRun]
    rewritten: list[RewrittenShard]


def check_version(version: str) -> None:
    """Raises Refused for what is no name of a version."""
    try:
        msgspec.convert(version, Version)
    except msgspec.ValidationError as error:
        raise Refused("invalid_setting", f"the version has no name: {error}") from error
