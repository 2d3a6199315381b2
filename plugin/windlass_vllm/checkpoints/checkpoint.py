"""An open checkpoint: live weights become its next version."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from windlass_vllm.checkpoints.appending import Weights, append
from windlass_vllm.checkpoints.blocks import from_bytes
from windlass_vllm.checkpoints.comparing import changes_between, check_weights, compare
from windlass_vllm.checkpoints.disk import Disk, lock
from windlass_vllm.checkpoints.folder import check_entries, check_own, read_shards
from windlass_vllm.checkpoints.log import ReadLog, read_log
from windlass_vllm.checkpoints.records import Delta, check_version
from windlass_vllm.checkpoints.settling import apply, newest_tables, recover, settle
from windlass_vllm.refusal import Refused


class WriteReport(msgspec.Struct, kw_only=True):
    """The work of one write: bytes, and seconds by the clock."""

    version: str
    compared: int
    changed: int
    written: int
    """Everything that went to the disk: blocks, whole files, log and tables."""
    seconds: float
    tensors: dict[str, int]
    """Changed bytes by tensor, where there are any."""
    rewritten: list[str]
    """Files that were written whole, in sequence, since most of them had changed."""


class BlockCheckpoint:
    """A folder that one process writes.

    Opening finishes or drops what a crash left. When `write` returns, the version is on the disk;
    when `settle` returns, it is in the files that others read. An error in either closes the
    checkpoint, since nobody knows what the disk holds then: open it again. Raises Refused.
    """

    def __init__(
        self, folder: Path, *, protected: Sequence[Path] = (), disk: Disk | None = None
    ) -> None:
        self._lock = lock(folder, shared=False)
        self.folder = folder.resolve()
        self._disk = disk or Disk(self.folder)
        self._closed = False
        try:
            check_own(self.folder, protected)
            self._log = read_log(self.folder)
            check_entries(self.folder, self._log.base)
            self.shards = read_shards(self.folder, self._log.base)
            self.recovered = recover(self._disk, self._log, self.shards)
            """Bytes that were written to finish what a crash left."""
            self._log = read_log(self.folder)
            self._tables = newest_tables(self._log, self.shards)
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> str:
        """The newest version that is on the disk."""
        return self._log.version

    def write(self, weights: Weights, version: str) -> WriteReport:
        """Compares live weights with the newest version, and logs what changed under a name."""
        self._check_open()
        check_version(version)
        began = time.monotonic()
        check_weights(weights, self.shards)
        pairs = zip(self.shards, self._tables, strict=True)
        changes = [compare(weights, shard, table) for shard, table in pairs]
        log = self._log
        number = log.base.generation + len(log.deltas) + 1
        delta = Delta(generation=number, version=version, runs=[], rewritten=[])
        with _Closing(self):
            done = append(self._disk, self.shards, changes, weights, delta, log.end, log.digest)
            for whole in delta.rewritten:
                shard, table = self.shards[whole.shard], self._tables[whole.shard]
                changes[whole.shard] = changes_between(shard, table, from_bytes(whole.hashes))
            apply(delta, self._tables)
            deltas = [*log.deltas, done.logged]
            self._log = ReadLog(log.base, deltas, done.end, done.digest, 0)
        # A file that was written whole waits for its place, of which there is one.
        settled = self.settle() if done.rewritten else 0
        return WriteReport(
            version=version,
            compared=sum(one.size for shard in self.shards for one in shard.tensors),
            changed=sum(change.size for change in changes if change),
            written=done.written + settled,
            seconds=time.monotonic() - began,
            tensors={name: size for one in changes if one for name, size in one.tensors.items()},
            rewritten=done.rewritten,
        )

    def settle(self) -> int:
        """Makes the files those of the newest version; returns the bytes that were written.

        A block that changed in many versions is written once.
        """
        self._check_open()
        with _Closing(self):
            written = settle(self._disk, self._log, self.shards, self._tables)
            self._log = read_log(self.folder)
        return written

    def close(self) -> None:
        """Lets go of the folder; what is logged stays so."""
        if not self._closed:
            self._closed = True
            self._disk.close()
            os.close(self._lock)

    def __enter__(self) -> "BlockCheckpoint":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Refused("checkpoint_closed", "the checkpoint was closed: open it again")


class _Closing:
    """Closes a checkpoint if the block raises."""

    def __init__(self, checkpoint: BlockCheckpoint) -> None:
        self._checkpoint = checkpoint

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._checkpoint.close()
