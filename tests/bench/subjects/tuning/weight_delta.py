"""A version of 1 GiB of bf16 weights after a step at 1e-5: as a delta, and in place on one host.

The step is AdamW's first one, in which every element moves by the whole rate: what comes later
changes fewer bits. Transfers are counted, at 1 Gbit/s, and not made. The floor of the delta is
sending and copying all of it, that of the same host a copy in memory by as many threads.
"""

import asyncio
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tests.bench.figures import Figure, Options, at_most, plain

from windlass.weight_versions import (
    BASE,
    ArrayBytes,
    HeldVersion,
    SharedMemory,
    VersionPublisher,
    Weights,
    checked_chain,
)
from windlass.weight_versions.manifest import Codec

RATE, BITS_A_SECOND = 1e-5, 1e9
TENSORS, DEVIATION, THREADS = 32, 0.02, 2


async def measure(options: Options) -> list[Figure]:
    """Medians of rounds, in each of which the floor has its turn."""
    size, rounds = (2**26, 1) if options.quick else (2**30, 5)
    before, after = await asyncio.to_thread(_step, size)
    with tempfile.TemporaryDirectory() as scratch:
        deltas = await _rounds("zstd", before, after, Path(scratch), rounds)
        wholes = await _rounds("none", before, after, Path(scratch), rounds)
    sent = deltas.stored / size
    copies = statistics.median(deltas.copies + wholes.copies)
    whole = size * 8 / BITS_A_SECOND + copies
    delta = deltas.encode + deltas.stored * 8 / BITS_A_SECOND + deltas.bring
    return [
        at_most("weight_delta_share", sent, "of the weights' bytes", 0.15),
        plain("weight_delta_encode", deltas.encode, "s"),
        plain("weight_delta_bring", deltas.bring, "s to check and put in place"),
        Figure(name="weight_delta", value=delta, unit="s at 1 Gbit/s")
        .beside("all of it", whole)
        .at_most_times(1),
        Figure(name="weight_in_place", value=size / wholes.bring / 1e9, unit="GB/s")
        .beside("copy", size / copies / 1e9)
        .at_least_times(0.5),
        Figure(name="weight_in_place_fenced", value=size / wholes.put / 1e9, unit="GB/s").beside(
            "copy", size / copies / 1e9
        ),
    ]


class _Medians:
    def __init__(self) -> None:
        self.stored = 0
        self.encodes: list[float] = []
        self.checks: list[float] = []
        self.puts: list[float] = []
        self.copies: list[float] = []

    @property
    def encode(self) -> float:
        return statistics.median(self.encodes)

    @property
    def put(self) -> float:
        """While which no request is answered."""
        return statistics.median(self.puts)

    @property
    def bring(self) -> float:
        pairs = zip(self.checks, self.puts, strict=True)
        return statistics.median([check + put for check, put in pairs])


async def _rounds(
    codec: Codec, before: Weights, after: Weights, scratch: Path, rounds: int
) -> _Medians:
    """Publishes the step and puts it in place, with another pair of weights each time."""
    found = _Medians()
    medium = SharedMemory(f"bench-{secrets.token_hex(6)}")
    publisher = VersionPublisher(medium, scratch, codec=codec)
    base = await publisher.start(before)
    held = HeldVersion(BASE, base, base)
    served, spare = _copied(before), _copied(before)
    try:
        for version in range(1, rounds + 1):
            weights = after if version % 2 else before
            begun = time.perf_counter()
            manifest = await publisher.put(version, weights)
            found.encodes.append(time.perf_counter() - begun)
            found.stored = max(found.stored, manifest.size)
            found.copies.append(_seconds(partial(_copy, weights, spare)))
            begun = time.perf_counter()
            async with checked_chain(medium, version, held, served, scratch) as (chain, held):
                found.checks.append(time.perf_counter() - begun)
                found.puts.append(_seconds(chain.apply))
            await medium.remove(version - 1)
    finally:
        publisher.close()
        await medium.close()
    return found


def _step(size: int) -> tuple[Weights, Weights]:
    """Random weights, and what AdamW makes of them."""
    before, after = {}, {}
    torch.manual_seed(0)
    for number in range(TENSORS):
        elements = size // TENSORS // 2
        weight = torch.nn.Parameter(torch.randn(elements) * DEVIATION)
        before[f"layers.{number}"] = _bytes_of(weight)
        optimizer = torch.optim.AdamW([weight], lr=RATE)
        weight.grad = torch.randn(elements)
        optimizer.step()
        after[f"layers.{number}"] = _bytes_of(weight)
    return before, after


def _bytes_of(weight: torch.Tensor) -> ArrayBytes:
    stored = weight.detach().to(torch.bfloat16)
    return ArrayBytes(stored.view(torch.uint8).numpy(), "BF16", tuple(stored.shape))


def _copied(weights: Weights) -> dict[str, ArrayBytes]:
    return {
        name: ArrayBytes(one.read(0, one.nbytes).copy(), one.dtype, one.shape)
        for name, one in weights.items()
    }


def _copy(weights: Weights, target: Weights) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        pairs = ((target[name], one) for name, one in weights.items())
        list(pool.map(lambda pair: np.copyto(*(x.read(0, x.nbytes) for x in pair)), pairs))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
