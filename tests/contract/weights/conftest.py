"""The media of weight versions that one suite is run against, and weights that change."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.contract.conftest import Subject, everything_sealed
from tests.contract.object_content import read, stream

from windlass.core.objects import ObjectStore
from windlass.weight_objects import ObjectMedium
from windlass.weight_versions import (
    ArrayBytes,
    FolderMedium,
    HeldVersion,
    SharedMemory,
    VersionMedium,
    WeightManifest,
    Weights,
    checked_chain,
)

Change = Callable[[int, str, Callable[[bytes], bytes]], Awaitable[None]]
# Chunks of a mebibyte, and a rest.
ROWS, COLUMNS = 1300, 1024
FACTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "embed.weight": ("BF16", (ROWS, COLUMNS)),
    "frozen.weight": ("BF16", (64, 64)),
    "layer.bias": ("F32", (7,)),
    "layer.weight": ("F16", (33, 65)),
    "empty": ("F32", (0, 4)),
    "packed.weight": ("F8_E4M3", (129, 31)),
    "packed.zeros": ("I8", (31,)),
    "scale": ("F32", ()),
}
WIDTH = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I8": 1}


@dataclass
class Place:
    """A medium; `change` rewrites a stored file of a version behind its back."""

    medium: VersionMedium
    change: Change


def made(seed: int = 0) -> dict[str, ArrayBytes]:
    """Random weights of every type."""
    source = np.random.default_rng(seed)
    return {
        name: ArrayBytes(
            source.integers(0, 256, int(np.prod(shape)) * WIDTH[dtype], np.uint8), dtype, shape
        )
        for name, (dtype, shape) in FACTS.items()
    }


def stepped(weights: Weights, seed: int) -> None:
    """Changes the low byte of some elements of all tensors but the frozen one, as a step does."""
    source = np.random.default_rng(seed)
    for name, tensor in weights.items():
        if name != "frozen.weight" and tensor.nbytes:
            width = WIDTH[tensor.dtype]
            octets = tensor.read(0, tensor.nbytes)
            hit = source.random(octets.size // width) < 0.12
            octets[::width] ^= np.where(hit, 1, 0).astype(np.uint8)
            octets[0] ^= 2


def copied(weights: Weights) -> dict[str, ArrayBytes]:
    """The same bits in memory of their own."""
    return {
        name: ArrayBytes(one.read(0, one.nbytes).copy(), one.dtype, one.shape)
        for name, one in weights.items()
    }


def bits(weights: Weights) -> dict[str, bytes]:
    """The bits of each tensor."""
    return {name: one.read(0, one.nbytes).tobytes() for name, one in weights.items()}


async def brought(
    medium: VersionMedium, version: int, held: HeldVersion, weights: Weights, scratch: Path
) -> HeldVersion:
    """Puts a version in place."""
    async with checked_chain(medium, version, held, weights, scratch) as (chain, found):
        chain.apply()
    return found


async def rewritten(
    place: Place, version: int, change: Callable[[WeightManifest], WeightManifest]
) -> None:
    """Rewrites the manifest of a version, digests and all, as a hostile publisher would."""

    def replaced(content: bytes) -> bytes:
        return change(WeightManifest.read(content)).content()

    await place.change(version, "manifest.json", replaced)


@pytest.fixture
async def shared_memory(tmp_path: Path) -> AsyncIterator[Place]:
    medium = SharedMemory(f"test-{secrets.token_hex(6)}")
    yield Place(medium, _in_folder(medium.root))
    await medium.close()


@pytest.fixture
def volume(tmp_path: Path) -> Place:
    root, scratch = tmp_path / "volume", tmp_path / "scratch"
    root.mkdir()
    scratch.mkdir()
    return Place(FolderMedium(root, scratch), _in_folder(root))


@pytest.fixture
def objects(filesystem: Subject, tmp_path: Path) -> Place:
    return _in_store(filesystem.store, tmp_path)


@pytest.fixture
def sealed_objects(filesystem: Subject, tmp_path: Path) -> Place:
    return _in_store(everything_sealed(filesystem.store), tmp_path)


@pytest.fixture(params=["shared_memory", "volume", "objects", "sealed_objects"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each medium in turn."""
    found: Place = request.getfixturevalue(request.param)
    return found


def _in_folder(root: Path) -> Change:
    async def change(version: int, name: str, make: Callable[[bytes], bytes]) -> None:
        path = root / f"{version:016}" / name
        content = make(path.read_bytes())
        path.unlink()
        path.write_bytes(content)

    return change


def _in_store(store: ObjectStore, tmp_path: Path) -> Place:
    prefix = "tuning/proj_sealed/weights/run-1/"

    async def change(version: int, name: str, make: Callable[[bytes], bytes]) -> None:
        key = f"{prefix}{version:016}/{name}"
        await store.put(key, stream(make(await read(store, key))))

    return Place(ObjectMedium(store, prefix, tmp_path), change)
