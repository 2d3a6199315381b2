"""Chunks of a delta: planes of bytes, with zstd.

Plane i holds byte i of each element. Small updates change the low bytes, so that the high planes
are nearly all zeros.
"""

import numpy as np
import zstandard

from windlass.weight_versions.refusals import WeightsRefused
from windlass.weight_versions.tensors import Octets

_LEVEL = 1
# What a frame of a chunk's size can need, so that no header asks for more.
_WINDOW_BYTES = 2**21
# By the bytes of an element. Shifts of whole words are several times as fast as strides of bytes.
_WORDS: dict[int, np.dtype[np.unsignedinteger]] = {
    width: np.dtype(f"<u{width}") for width in (1, 2, 4)
}


def encode(difference: Octets, width: int) -> bytes:
    """A chunk of elements of `width` bytes, compressed."""
    elements = difference.view(_WORDS[width])
    planes = np.empty((width, elements.size), np.uint8)
    for number, plane in enumerate(planes):
        np.copyto(plane, elements >> (8 * number), casting="unsafe")
    return zstandard.ZstdCompressor(level=_LEVEL).compress(planes.data)


def decode(stored: bytes, width: int, size: int) -> Octets:
    """The `size` bytes of a chunk; raises WeightsRefused, and never takes more memory."""
    try:
        # The header says how much memory is taken, so it is read first.
        told = zstandard.get_frame_parameters(stored).content_size
        if told != size:
            raise WeightsRefused(
                "oversized_content", f"A chunk says that it has {told} bytes and not {size}."
            )
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES)
        content = decompressor.decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WeightsRefused("damaged_content", f"A chunk is damaged: {error}.") from error
    if len(content) != size:
        raise WeightsRefused("damaged_content", "A chunk is shorter than it says.")
    planes = np.frombuffer(content, np.uint8).reshape(width, -1)
    elements = planes[0].astype(_WORDS[width])
    for number, plane in enumerate(planes[1:], 1):
        if plane.any():
            elements |= plane.astype(elements.dtype) << (8 * number)
    octets: Octets = elements.view(np.uint8)
    return octets
