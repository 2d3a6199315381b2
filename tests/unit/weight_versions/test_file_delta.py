"""A file of weights as a delta to another: the same bytes come back, and nothing of a lie."""

import hashlib
import io
import json
from collections.abc import AsyncIterator

import numpy as np
import pytest
import zstandard

from windlass.weight_versions.file_delta import MARK, applied_delta, write_delta
from windlass.weight_versions.refusals import WeightsRefused
from windlass.weight_versions.writing import DeltaTooLarge

WIDTHS = {"F32": 4, "BF16": 2, "I64": 8, "F8_E4M3": 1}


def weights(seed: int, *, shapes: dict[str, tuple[str, int]] | None = None) -> bytes:
    """A file of safetensors: by default one tensor of several chunks, and some of odd types."""
    shapes = shapes or {"a": ("BF16", 2**20 + 3), "b": ("F8_E4M3", 5), "c": ("I64", 4)}
    chance, tensors, content = np.random.default_rng(seed), {}, b""
    for name, (dtype, elements) in shapes.items():
        data = chance.bytes(elements * WIDTHS[dtype])
        offsets = [len(content), len(content) + len(data)]
        tensors[name] = {"dtype": dtype, "shape": [elements], "data_offsets": offsets}
        content += data
    header = json.dumps(tensors | {"__metadata__": {"format": "pt"}}).encode()
    return len(header).to_bytes(8, "little") + header + content


def learned(parent: bytes) -> bytes:
    """The parent after a step: low bits of a few elements."""
    content = bytearray(parent)
    for place in range(len(content) - 60, 10_000, -1001):
        content[place] ^= 3
    return bytes(content)


def delta_of(parent: bytes, child: bytes, bound: int = 2**40) -> bytes:
    out = io.BytesIO()
    made = write_delta(io.BytesIO(parent), io.BytesIO(child), out, size=len(child), bound=bound)
    assert made.size == len(out.getvalue())
    assert made.parent == hashlib.sha256(parent).digest()
    assert made.child == hashlib.sha256(child).digest()
    return out.getvalue()


async def parts(content: bytes, size: int = 65_537) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def applied(parent: bytes, delta: bytes) -> bytes:
    made = applied_delta(parts(parent), parts(delta), size=len(parent))
    return b"".join([one async for one in made])


async def test_the_same_bytes_come_back_of_fewer() -> None:
    parent = weights(1)
    child = learned(parent)
    delta = delta_of(parent, child)
    assert len(delta) < len(child) / 10
    assert await applied(parent, delta) == child
    same = delta_of(parent, parent)
    assert len(same) < 100
    assert await applied(parent, same) == parent


@pytest.mark.parametrize(
    "header",
    [b"no json", b'{"a": {"dtype": "F32", "data_offsets": [4, 8]}}', b'{"a": [1]}', b"[" * 9000],
)
async def test_a_header_that_says_no_places_is_followed_all_the_same(header: bytes) -> None:
    """Both sides read one header, so that they cut it alike."""
    parent = len(header).to_bytes(8, "little") + header + weights(2)
    child = learned(parent)
    assert await applied(parent, delta_of(parent, child)) == child


def test_what_is_hardly_smaller_and_what_has_another_header_has_no_delta() -> None:
    parent = weights(1)
    with pytest.raises(DeltaTooLarge):
        delta_of(parent, parent[:2000] + weights(2)[2000:], bound=len(parent) // 2)
    for other in (weights(1, shapes={"a": ("F32", 2**20)}), b"GGUF" + bytes(2**20), b"short"):
        with pytest.raises(WeightsRefused):
            delta_of(parent, other)
        with pytest.raises(WeightsRefused):
            delta_of(other, parent)


async def test_a_delta_to_another_parent_makes_another_file() -> None:
    parent, other = weights(1), weights(2)
    child = learned(parent)
    made = await applied(other, delta_of(parent, child))
    assert hashlib.sha256(made).digest() != hashlib.sha256(child).digest()


def bomb(parent: bytes) -> bytes:
    """A first chunk that would be a hundred times as large."""
    frame = zstandard.ZstdCompressor().compress(bytes(100 * 2**20))
    return MARK + len(frame).to_bytes(4, "little") + frame


async def test_what_is_no_delta_of_the_file_is_refused() -> None:
    parent = weights(1)
    delta = delta_of(parent, learned(parent))
    long = MARK + (2**31).to_bytes(4, "little") + bytes(2**22)
    damaged = delta[:20] + bytes([delta[20] ^ 255]) + delta[21:]
    for content, reason in (
        (delta[:-1], "damaged_content"),
        (b"", "damaged_content"),
        (b"x" * len(delta), "damaged_content"),
        (delta + b"\0", "oversized_content"),
        (bomb(parent), "oversized_content"),
        (long, "oversized_content"),
        (damaged, "damaged_content"),
    ):
        with pytest.raises(WeightsRefused) as refused:
            await applied(parent, content)
        assert refused.value.reason == reason
    with pytest.raises(WeightsRefused):
        await applied(parent[:-1], delta)
