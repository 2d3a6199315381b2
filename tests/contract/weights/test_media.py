"""Versions through every medium: what arrives is what was published, or nothing is changed."""

import hashlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
import xxhash
import zstandard
from tests.contract.weights.conftest import (
    Place,
    bits,
    brought,
    copied,
    made,
    rewritten,
    stepped,
)

from windlass.weight_versions import (
    BASE,
    ArrayBytes,
    HeldVersion,
    VersionPublisher,
    WeightManifest,
    WeightsRefused,
    WeightsTorn,
    checked_chain,
    digest_of,
)
from windlass.weight_versions.manifest import weights_digest


async def published(place: Place, scratch: Path, versions: int) -> list[dict[str, ArrayBytes]]:
    """Publishes deltas; returns the weights of each version, the base's first."""
    weights = made()
    publisher = VersionPublisher(place.medium, scratch)
    found = [copied(weights)]
    await publisher.start(weights)
    for version in range(1, versions + 1):
        stepped(weights, version)
        manifest = await publisher.put(version, weights)
        assert manifest.parent == version - 1
        found.append(copied(weights))
    publisher.close()
    return found


def base(weights: dict[str, ArrayBytes]) -> HeldVersion:
    digest = digest_of(weights)
    return HeldVersion(BASE, digest, digest)


async def test_each_version_arrives_bit_by_bit_alone_and_over_several(
    place: Place, tmp_path: Path
) -> None:
    versions = await published(place, tmp_path, 3)
    one, all_at_once = copied(versions[0]), copied(versions[0])
    held = base(one)
    for version in (1, 2, 3):
        held = await brought(place.medium, version, held, one, tmp_path)
        assert bits(one) == bits(versions[version])
        assert held.version == version
        assert held.weights == digest_of(versions[version])
    assert await brought(place.medium, 3, base(all_at_once), all_at_once, tmp_path) == held
    assert bits(all_at_once) == bits(versions[3])
    assert await brought(place.medium, 3, held, one, tmp_path) == held, "nothing to do"


async def test_a_full_one_comes_every_so_often_and_where_a_delta_saves_nothing(
    place: Place, tmp_path: Path
) -> None:
    weights = made()
    publisher = VersionPublisher(place.medium, tmp_path, full_every=3)
    await publisher.start(weights)
    start = copied(weights)
    parents = []
    for version in range(1, 6):
        stepped(weights, version)
        parents.append((await publisher.put(version, weights)).parent)
    assert parents == [0, 1, None, 3, 4]
    other = made(seed=1)
    for name, tensor in weights.items():
        tensor.write(0, other[name].octets)
    manifest = await publisher.put(6, weights)
    assert manifest.parent is None
    assert manifest.size == sum(one.nbytes for one in weights.values())
    publisher.close()
    held = await brought(place.medium, 5, base(start), start, tmp_path)
    await brought(place.medium, 6, held, start, tmp_path)
    assert bits(start) == bits(weights)


async def test_a_delta_is_small_and_what_stands_still_takes_nothing(
    place: Place, tmp_path: Path
) -> None:
    await published(place, tmp_path, 1)
    manifest = await place.medium.manifest(1)
    whole = sum(record.nbytes for record in manifest.tensors)
    assert manifest.size < whole * 0.15
    records = {record.name: record for record in manifest.tensors}
    assert (records["frozen.weight"].encoding, records["frozen.weight"].size) == ("same", 0)


async def test_a_version_is_published_once_and_goes_when_it_is_removed(
    place: Place, tmp_path: Path
) -> None:
    versions = await published(place, tmp_path, 1)
    publisher = VersionPublisher(place.medium, tmp_path)
    with pytest.raises(WeightsRefused, match="there already") as refusal:
        await publisher.put(1, versions[1])
    assert refusal.value.reason == "version_exists"
    await brought(place.medium, 1, base(versions[0]), copied(versions[0]), tmp_path)
    await place.medium.remove(1)
    await place.medium.remove(1)
    with pytest.raises(WeightsRefused, match="There is no version 1") as refusal:
        await place.medium.manifest(1)
    assert refusal.value.reason == "unknown_version"
    publisher.close()


async def refused(
    place: Place, weights: dict[str, ArrayBytes], scratch: Path, version: int = 2
) -> str:
    """The reason why a version is refused; nothing of the weights was changed."""
    before = bits(weights)
    with pytest.raises(WeightsRefused) as refusal:
        async with checked_chain(place.medium, version, base(weights), weights, scratch):
            raise AssertionError("it was not refused before it is put in place")
    assert bits(weights) == before
    return refusal.value.reason


def flipped(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 16]) + content[-8:]


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (flipped, {"damaged_content"}),
        (lambda content: content[:-1], {"damaged_content"}),
        (lambda content: b"", {"damaged_content"}),
        (lambda content: content + b"!", {"oversized_content"}),
    ],
    ids=["flipped", "cut", "empty", "longer"],
)
async def test_damaged_content_is_refused_before_anything_is_put_in_place(
    place: Place, tmp_path: Path, change: Callable[[bytes], bytes], reasons: set[str]
) -> None:
    """The last of two versions is damaged: the first, which is whole, is not put in place."""
    versions = await published(place, tmp_path, 2)
    await place.change(2, "weights.bin", change)
    assert await refused(place, versions[0], tmp_path) in reasons


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda content: content[:40], "invalid_manifest"),
        (lambda content: b"[" * 100_000, "invalid_manifest"),
        (lambda content: b"\xff" + content, "invalid_manifest"),
        (lambda content: content.replace(b'"version":2', b'"version":3'), "invalid_manifest"),
        (lambda content: content.replace(b'"parent":1', b'"parent":2'), "invalid_manifest"),
        (lambda content: content.replace(b'"parent":1', b'"parent":null'), "invalid_manifest"),
        (lambda content: content.replace(b'"parent":1', b'"parent":0'), "wrong_parent"),
        (lambda content: content.replace(b'"xor"', b'"same"', 1), "invalid_manifest"),
        (lambda content: content.replace(b'"BF16"', b'"F16"', 1), "invalid_manifest"),
        (lambda content: content.replace(b'"F32"', b'"F64"', 1), "invalid_manifest"),
        (lambda content: content.replace(b"1300", b"1301"), "invalid_manifest"),
        (lambda content: content.replace(b"1300", b"9007199254740991"), "invalid_manifest"),
        (lambda content: content.replace(b'"format"', b'"more"'), "invalid_manifest"),
    ],
)
async def test_a_manifest_that_contradicts_itself_is_refused(
    place: Place, tmp_path: Path, change: Callable[[bytes], bytes], match: str
) -> None:
    versions = await published(place, tmp_path, 2)
    await place.change(2, "manifest.json", change)
    assert await refused(place, versions[0], tmp_path) == match


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "F16"},
        {"shape": (1024, 1300)},
        {"name": "other.weight"},
    ],
)
async def test_other_types_shapes_and_tensors_are_refused_by_name(
    place: Place, tmp_path: Path, change: dict[str, object]
) -> None:
    """The manifest is consistent: it is the model that has something else."""
    versions = await published(place, tmp_path, 1)

    def changed(manifest: WeightManifest) -> WeightManifest:
        tensors = tuple(
            msgspec.structs.replace(one, **change) if one.name == "embed.weight" else one
            for one in manifest.tensors
        )
        return msgspec.structs.replace(manifest, tensors=tensors, weights=weights_digest(tensors))

    await rewritten(place, 1, changed)
    with pytest.raises(WeightsRefused, match=r"embed\.weight"):
        await brought(place.medium, 1, base(versions[0]), versions[0], tmp_path)
    assert await refused(place, versions[0], tmp_path, 1) == "wrong_tensor"


def bombs() -> dict[str, bytes]:
    """Frames that become 32 MiB of zeros."""
    told = zstandard.ZstdCompressor().compress(bytes(2**25))
    lying = told.replace((2**25).to_bytes(4, "little"), (28).to_bytes(4, "little"), 1)
    assert lying != told
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(2**25))
    return {"told": told, "lying": lying, "silent": silent, "none": b"no frame"}


@pytest.mark.parametrize(
    ("bomb", "reason"),
    [
        ("told", "oversized_content"),
        ("silent", "oversized_content"),
        ("lying", "damaged_content"),
        ("none", "damaged_content"),
    ],
)
async def test_a_bomb_is_refused_by_what_its_frame_says_or_holds(
    place: Place, tmp_path: Path, bomb: str, reason: str
) -> None:
    """A publisher that lies: all digests fit, and a chunk becomes more than its tensor has."""
    versions = await published(place, tmp_path, 1)
    frame, content = bombs()[bomb], b""

    def keep(found: bytes) -> bytes:
        nonlocal content
        content = found
        return found

    def lied(manifest: WeightManifest) -> WeightManifest:
        nonlocal content
        tensors, grown = [], b""
        for record in manifest.tensors:
            part = content[record.offset : record.offset + record.size]
            stored, sizes = record.stored, record.chunks
            if record.name == "layer.bias":
                part, stored, sizes = frame, xxhash.xxh3_128_hexdigest(frame), (len(frame),)
            moved = {"offset": len(grown), "stored": stored, "chunks": sizes}
            tensors.append(msgspec.structs.replace(record, **moved))
            grown += part
        content = grown
        return msgspec.structs.replace(
            manifest,
            tensors=tuple(tensors),
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )

    await place.change(1, "weights.bin", keep)
    await rewritten(place, 1, lied)
    await place.change(1, "weights.bin", lambda _: content)
    tracemalloc.start()
    assert await refused(place, versions[0], tmp_path, 1) == reason
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24


async def test_another_base_and_another_parent_are_refused(place: Place, tmp_path: Path) -> None:
    versions = await published(place, tmp_path, 2)
    assert await refused(place, made(seed=5), tmp_path) == "wrong_base"
    right = base(versions[0])
    strange = made(seed=6)
    before = bits(strange)
    # Weights that are not what is said of them: only the result tells.
    with pytest.raises(WeightsRefused, match="not those of its parent") as refusal:
        await brought(place.medium, 2, right, strange, tmp_path)
    assert refusal.value.reason == "wrong_parent"
    assert bits(strange) == before
    at_other = HeldVersion(1, hashlib.sha256(b"").hexdigest(), right.base_weights)
    with pytest.raises(WeightsRefused, match="begins with the model") as refusal:
        await brought(place.medium, 2, at_other, strange, tmp_path)
    assert refusal.value.reason == "wrong_parent"


async def test_where_even_undoing_fails_it_is_told_apart(place: Place, tmp_path: Path) -> None:
    versions = await published(place, tmp_path, 1)
    calls = [0]

    class Lost(ArrayBytes):
        def xor(self, start: int, difference: np.ndarray) -> None:
            calls[0] += 1
            if calls[0] >= 3:
                raise OSError("the device is lost")
            super().xor(start, difference)

    weights = {
        name: Lost(one.octets.copy(), one.dtype, one.shape) for name, one in versions[0].items()
    }
    with pytest.raises(WeightsTorn):
        await brought(place.medium, 1, base(versions[0]), weights, tmp_path)


@pytest.mark.parametrize("full", [False, True], ids=["deltas", "full"])
@pytest.mark.parametrize("fails_at", [1, 2, 9, 14])
async def test_after_a_failure_midway_every_bit_is_as_before(
    place: Place, tmp_path: Path, full: bool, fails_at: int
) -> None:
    versions = await published(place, tmp_path, 2)
    wanted = 2
    if full:
        publisher = VersionPublisher(
            place.medium, tmp_path, base_weights=digest_of(versions[0]), full_every=5
        )
        await publisher.put(3, versions[2])
        stepped(versions[2], 9)
        await publisher.put(4, versions[2])
        publisher.close()
        wanted = 4
    calls = [0]

    class Failing(ArrayBytes):
        def write(self, start: int, content: np.ndarray) -> None:
            self._count()
            super().write(start, content)

        def xor(self, start: int, difference: np.ndarray) -> None:
            self._count()
            super().xor(start, difference)

        def _count(self) -> None:
            calls[0] += 1
            if calls[0] == fails_at:
                raise OSError("the device has failed")

    weights = {
        name: Failing(one.octets.copy(), one.dtype, one.shape) for name, one in versions[0].items()
    }
    before, held = bits(weights), base(versions[0])
    with pytest.raises(OSError, match="the device has failed"):
        await brought(place.medium, wanted, held, weights, tmp_path)
    assert bits(weights) == before
    await brought(place.medium, wanted, held, weights, tmp_path)
    assert bits(weights) == bits(versions[2])
