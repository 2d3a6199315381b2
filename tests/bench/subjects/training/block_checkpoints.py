"""A model's blocks compared with a table of hashes, and its changed blocks written."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from tests.bench.figures import Figure, Options, at_most, plain

from windlass_vllm.checkpoints.blocks import hashes_of, pieces
from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.comparing import compare
from windlass_vllm.checkpoints.folder import create_checkpoint
from windlass_vllm.checkpoints.shards import BLOCK

MIB = 2**20
_CHUNK = 8 * MIB
_RSYNC = ("rsync", "--inplace", "--no-whole-file", "--ignore-times", f"-B{BLOCK}")


async def measure(options: Options) -> list[Figure]:
    """The best of some rounds of processor time, the median of those with the disk."""
    size, rounds = (64 * MIB, 2) if options.quick else (512 * MIB, 5)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(dir=_disk()) as name:
            folder = Path(name)
            live = {"weight": torch.randint(0, 256, (size,), dtype=torch.uint8)}
            return [*_comparing(folder, live["weight"], rounds), *_writing(folder, live, rounds)]
    finally:
        torch.set_num_threads(threads)


def _disk() -> Path:
    """A folder on a disk: what is temporary may lie in memory."""
    folder = Path(__file__).resolve().parents[4] / "build"
    folder.mkdir(exist_ok=True)
    return folder


def _comparing(folder: Path, live: torch.Tensor, rounds: int) -> list[Figure]:
    """Processor time on one core: memory beside memory, and beside rsync of the same change."""
    size, weights = live.numel(), {"weight": live}
    with _opened(folder / "compared", weights) as checkpoint:
        (shard,) = checkpoint.shards
    table, changed, copied = hashes_of(memoryview(live.numpy())), _change(live, 0.01), live.clone()
    found = compare(weights, shard, table)
    assert found
    assert len(found.blocks) == changed
    pairs = [
        (_cpu(lambda: compare(weights, shard, table)), _cpu(lambda: copied.copy_(live)))
        for _ in range(rounds)
    ]
    ours, copy = (size / min(times) / 1e9 for times in zip(*pairs, strict=True))
    unit = "GB per CPU s"
    figures = [plain("block_compare", ours, unit).beside("copy", copy).at_least_times(0.5)]
    if not shutil.which("rsync"):
        print("note: no rsync here, so that nothing is compared with it", file=sys.stderr)
        return figures
    peer, rsync = "rsync --inplace", _rsync(folder, live, rounds)
    whole = size / _sync_cpu(folder, live, rounds) / 1e9
    return [
        *figures,
        plain("block_compare_rsync", ours, unit).beside(peer, rsync).at_least_times(10),
        # rsync compares and patches; this is what we take for both, to the disk.
        plain("block_sync_rsync", whole, unit).beside(peer, rsync),
    ]


def _rsync(folder: Path, live: torch.Tensor, rounds: int) -> float:
    """The best GB per second of processor time of rsync, where 1 % of the blocks changed."""
    new, old, rates = folder / "new", folder / "old", []
    live.numpy().tofile(new)
    for _ in range(rounds):
        shutil.copy(new, old)
        with old.open("r+b") as file:
            for place in range(0, live.numel(), BLOCK * 100):
                file.seek(place)
                file.write(b"changed")
        began = _children()
        subprocess.run([*_RSYNC, str(new), str(old)], check=True)
        rates.append(live.numel() / (_children() - began) / 1e9)
    return float(max(rates))


def _sync_cpu(folder: Path, live: torch.Tensor, rounds: int) -> float:
    """Processor seconds to compare, log and settle 1 %, as rsync compares and patches it."""
    times = []
    with _opened(folder / "cpu", {"weight": live}) as checkpoint:
        for number in range(rounds):
            _change(live, 0.01)
            times.append(_cpu(lambda: _settled(checkpoint, {"weight": live}, f"v{number}")))  # noqa: B023
    return min(times)


def _writing(folder: Path, live: dict[str, torch.Tensor], rounds: int) -> list[Figure]:
    size = live["weight"].numel()
    with _opened(folder / "disk", live) as checkpoint:
        _change(live["weight"], 0.01)
        report = checkpoint.write(live, "sparse")
        settled = checkpoint.settle()
        times, floor = [], []
        for number in range(rounds):
            floor.append(_wall(lambda: _plain_write(folder / "plain", live["weight"])))
            live["weight"].add_(1)
            dense = checkpoint.write(live, f"dense {number}")
            assert dense.rewritten
            times.append(dense.seconds)
    share = 100 * report.written / size
    rate, least = (size / statistics.median(taken) / 1e6 for taken in (times, floor))
    return [
        at_most("sparse_write", share, "% of bytes", 1.1),
        plain("sparse_settle", 100 * settled / size, "% of bytes, table too"),
        plain("sparse_seconds", report.seconds, "s"),
        plain("dense_write", rate, "MB/s")
        .beside("new file, fsync, rename", least)
        .at_least_times(0.8),
    ]


def _opened(folder: Path, live: dict[str, torch.Tensor]) -> BlockCheckpoint:
    model = folder.with_name(f"{folder.name}-model")
    model.mkdir()
    save_file(live, model / "model.safetensors")
    made = create_checkpoint(model, folder, "begun")
    shutil.rmtree(model)
    return BlockCheckpoint(made)


def _settled(checkpoint: BlockCheckpoint, live: dict[str, torch.Tensor], version: str) -> None:
    checkpoint.write(live, version)
    checkpoint.settle()


def _change(weight: torch.Tensor, share: float) -> int:
    """Changes a byte in so many of the blocks, spread evenly; returns how many."""
    every = round(1 / share) * BLOCK
    weight[BLOCK // 2 :: every] += 1
    return int(weight[BLOCK // 2 :: every].numel())


def _plain_write(path: Path, weight: torch.Tensor) -> None:
    """Puts a new file in the old one's place, as whoever may not lose both would."""
    draft = path.with_suffix(".next")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT)
    for piece in pieces(weight, 0, weight.numel()):
        os.write(descriptor, piece)
    os.fsync(descriptor)
    os.close(descriptor)
    draft.rename(path)


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _wall(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _children() -> float:
    times = os.times()
    return times.children_user + times.children_system
