"""Dimensions of images by their headers; nothing is decompressed.

The formats: PNG (W3C REC-png-3), GIF89a, JPEG (ITU T.81), WebP (RFC 9649). A decoder makes an image
of as many pixels as these bytes say, however few bytes follow.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

PNG, JPEG, WEBP, GIF = "image/png", "image/jpeg", "image/webp", "image/gif"
# Of the parts of one file before its pixels; those of cameras have dozens.
_MAX_PARTS = 4096
# On average, of a part among the pixels; encoders fill parts of GIF with 255, of PNG with more.
_FEWEST_PART_BYTES = 128
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_FILL, _SCAN = 0xFF, 0xDA
# Markers of JPEG without a length.
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})
# Those with one, which all decoders skip alike: frames, tables, applications' and comments.
_SEGMENTS = frozenset({*_FRAMES, 0xC4, 0xCC, *range(0xDB, 0xDE), *range(0xE0, 0xF0), 0xFE})
_GIF_IMAGE, _GIF_EXTENSION, _GIF_END = 0x2C, 0x21, 0x3B
_GIF_APPLICATION = 0xFF
_PNG_ANIMATION = frozenset({b"acTL", b"fcTL", b"fdAT"})
# A decoder that meets these after the pixels may fail in a way that servers do not expect.
_PNG_BEFORE_PIXELS = frozenset({b"iCCP", b"tRNS"})
_WEBP_ANIMATED = 0x02


class Dimensions(NamedTuple):
    """Media type, and pixels across and down."""

    media_type: str
    width: int
    height: int

    @property
    def pixels(self) -> int:
        """Number of pixels."""
        return self.width * self.height


class UnreadableImage(ValueError):
    """No image that is taken here; the text says why, to be put after its name."""


def dimensions(data: bytes) -> Dimensions:
    """The dimensions of one still image; raises UnreadableImage."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            found = Dimensions(PNG, *_png(data))
        elif data.startswith(b"\xff\xd8\xff"):
            found = Dimensions(JPEG, *_jpeg(data))
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            found = Dimensions(WEBP, *_webp(data))
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            found = Dimensions(GIF, *_gif(data))
        else:
            raise UnreadableImage("is no PNG, JPEG, WebP or GIF")
    except (struct.error, IndexError) as error:
        raise UnreadableImage("ends within its header") from error
    if not found.pixels:
        raise UnreadableImage("has no pixels")
    return found


def _parts(what: str, most: int = _MAX_PARTS) -> Iterator[None]:
    yield from (None for _ in range(most))
    raise UnreadableImage(f"has more than {most} {what}")


def _most_parts(data: bytes) -> int:
    """The parts that a file may have with its pixels, which bounds the time to walk over them."""
    return len(data) // _FEWEST_PART_BYTES + _MAX_PARTS


def _png(data: bytes) -> tuple[int, int]:
    length, kind, width, height = struct.unpack_from(">I4sII", data, 8)
    if kind != b"IHDR" or length != 13:
        raise UnreadableImage("is a PNG that does not begin with its header")
    has_pixels = False
    for kind, content in _chunks(data):
        if kind in _PNG_ANIMATION:
            raise _animated()
        # A decoder would take the last one.
        if kind == b"IHDR":
            raise UnreadableImage("is a PNG with two headers")
        if has_pixels and (kind in _PNG_BEFORE_PIXELS or _is_text_packed_otherwise(kind, content)):
            raise UnreadableImage("is a PNG with a wrong chunk after its pixels")
        has_pixels |= kind == b"IDAT"
    if not has_pixels:
        raise UnreadableImage("is a PNG without pixels")
    return width, height


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Name and content of each chunk between the header of a PNG and its end."""
    at, view = 33, memoryview(data)
    for _ in _parts("chunks", _most_parts(data)):
        if len(data) < at + 12:
            raise UnreadableImage("is a PNG without its end")
        length, kind = struct.unpack_from(">I4s", data, at)
        if not kind.isalpha():
            raise UnreadableImage("is a PNG with a chunk whose name is not four letters")
        content, at = view[at + 8 : at + 8 + length], at + 12 + length
        if at > len(data):
            raise UnreadableImage("is a PNG that ends within a chunk")
        if kind == b"IEND":
            return
        yield kind, content


def _is_text_packed_otherwise(kind: bytes, content: memoryview) -> bool:
    """Returns True for text that is compressed by a method that no decoder has."""
    return kind == b"zTXt" and bytes(content).partition(b"\0")[2][:1] not in (b"", b"\0")


def _jpeg(data: bytes) -> tuple[int, int]:
    at, sizes = 2, set[tuple[int, int]]()
    for _ in _parts("segments"):
        if data[at] != 0xFF:
            raise UnreadableImage("is a JPEG with bytes between its segments")
        marker = data[at + 1]
        if marker == _FILL:
            at += 1
            continue
        if marker in _BARE:
            at += 2
            continue
        if marker == _SCAN:
            break
        # Decoders search what follows one of these for the next marker, instead of skipping a
        # length: it may hide another image. So they do after an end without a scan before it.
        if marker not in _SEGMENTS:
            raise UnreadableImage(f"is a JPEG with a marker {marker:#04x} in its header")
        (length,) = struct.unpack_from(">H", data, at + 2)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            sizes.add((width, height))
        at += length + 2
    if len(sizes) != 1:
        raise UnreadableImage("is a JPEG without one size")
    return sizes.pop()


def _webp(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        if data[20] & _WEBP_ANIMATED:
            raise _animated()
        return (
            int.from_bytes(_bytes(data, 24, 3), "little") + 1,
            int.from_bytes(_bytes(data, 27, 3), "little") + 1,
        )
    if kind == b"VP8L" and data[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    raise UnreadableImage("is a WebP of an unknown kind")


def _gif(data: bytes) -> tuple[int, int]:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at, frames = 13 + _table(flags), 0
    parts = _parts("sub-blocks", _most_parts(data))
    # Each frame has its own pixels, which may lie beyond the screen; one alone is a still image.
    for _ in _parts("blocks"):
        if (block := data[at]) == _GIF_END:
            break
        if block == _GIF_EXTENSION:
            at = _after_extension(data, at, parts)
            continue
        if block != _GIF_IMAGE:
            raise UnreadableImage("is a GIF with bytes between its blocks")
        if frames:
            raise _animated()
        left, top, across, down, flags = struct.unpack_from("<HHHHB", data, at + 1)
        width, height, frames = max(width, left + across), max(height, top + down), 1
        at = _after_blocks(data, at + 11 + _table(flags), parts)
    if not frames:
        raise UnreadableImage("is a GIF without an image")
    return width, height


def _table(flags: int) -> int:
    """The bytes of a table of colours."""
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _after_extension(data: bytes, at: int, parts: Iterator[None]) -> int:
    # Pillow reads the first sub-block, and the one after an application's name, without asking
    # whether it ends the extension: after an empty one it would go on in what follows.
    first = data[at + 2]
    if not first or (data[at + 1] == _GIF_APPLICATION and not data[at + 3 + first]):
        raise UnreadableImage("is a GIF with an empty extension")
    return _after_blocks(data, at + 2, parts)


def _after_blocks(data: bytes, at: int, parts: Iterator[None]) -> int:
    while size := data[at]:
        next(parts)
        at += size + 1
    return at + 1


def _bytes(data: bytes, at: int, number: int) -> bytes:
    if len(data) < at + number:
        raise IndexError
    return data[at : at + number]


def _animated() -> UnreadableImage:
    return UnreadableImage("is animated, and models read still images")
