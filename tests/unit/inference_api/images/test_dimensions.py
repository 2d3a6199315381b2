"""What the first bytes of an image say, and that nothing else is believed."""

import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.inference_api.images.dimensions import Dimensions, UnreadableImage, dimensions

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def header(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))


def png(width: int, height: int, *between: bytes) -> bytes:
    return PNG_MAGIC + header(width, height) + b"".join(between) + chunk(b"IDAT", b"x")


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def frame(width: int, height: int, marker: int = 0xC0) -> bytes:
    return segment(marker, struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00")


def jpeg(*segments: bytes) -> bytes:
    return b"\xff\xd8" + b"".join(segments) + segment(0xDA, b"\x00" * 6) + b"..\xff\xd9"


def gif(screen: tuple[int, int], *blocks: bytes, table: int = 0x80) -> bytes:
    colours = bytes(6) if table else b""
    return b"GIF89a" + struct.pack("<HHBBB", *screen, table, 0, 0) + colours + b"".join(blocks)


def picture(left: int, top: int, width: int, height: int) -> bytes:
    return struct.pack("<BHHHHB", 0x2C, left, top, width, height, 0) + b"\x02\x01x\x00"


def webp(kind: bytes, data: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(data) + 12) + b"WEBP" + kind + bytes(4) + data


EXTENSION = b"\x21\xf9\x04abcd\x00"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (png(3, 2), ("image/png", 3, 2)),
        (png(2**31 - 1, 2**31 - 1, chunk(b"tEXt", b"a")), ("image/png", 2**31 - 1, 2**31 - 1)),
        (jpeg(frame(640, 480)), ("image/jpeg", 640, 480)),
        (jpeg(segment(0xE1, b"x" * 65_000), b"\xff" + frame(5, 7, 0xC2)), ("image/jpeg", 5, 7)),
        # A table of Huffman codes is no frame.
        (jpeg(segment(0xC4, b"x" * 8), b"\xff\x01", frame(5, 7)), ("image/jpeg", 5, 7)),
        (gif((3, 2), picture(0, 0, 3, 2), b";"), ("image/gif", 3, 2)),
        (gif((3, 2), EXTENSION, picture(5, 0, 9, 1), b";", table=0), ("image/gif", 14, 2)),
        (webp(b"VP8X", b"\x10\0\0\0\x01\0\0\x02\0\0"), ("image/webp", 2, 3)),
        (webp(b"VP8L", b"\x2f" + struct.pack("<I", 4 | 8 << 14)), ("image/webp", 5, 9)),
        (webp(b"VP8 ", b"abc\x9d\x01\x2a\x07\x00\x08\xc0"), ("image/webp", 7, 8)),
    ],
)
def test_the_first_bytes_say_what_it_is_and_how_large(
    data: bytes, found: tuple[str, int, int]
) -> None:
    assert dimensions(data) == found


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no PNG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no PNG"),
        (b"%PDF-1.7", "is no PNG"),
        (b"\xff\xd8", "is no PNG"),
        (png(0, 2), "has no pixels"),
        (PNG_MAGIC + b"\0\0\0\x0dIHDR\0\0", "ends within its header"),
        (PNG_MAGIC + chunk(b"tEXt", b"a") + png(3, 2)[8:], "does not begin with its header"),
        (PNG_MAGIC + header(3, 2), "ends within its header"),
        # A decoder would take the last one of each.
        (png(3, 2, header(60_000, 60_000)), "two headers"),
        (jpeg(frame(3, 2), frame(60_000, 60_000)), "without one size"),
        (png(3, 2, *[chunk(b"tEXt", b"")] * 5000), "more than 4096 chunks"),
        (jpeg(*[segment(0xE0, b"")] * 5000), "more than 4096 segments"),
        (jpeg(), "without one size"),
        (jpeg(frame(3, 0)), "has no pixels"),
        (jpeg(frame(3, 2), b"x"), "bytes between its segments"),
        (png(3, 2, chunk(b"acTL", bytes(8))), "is animated"),
        (gif((3, 2), picture(0, 0, 3, 2), picture(0, 0, 3, 2)), "is animated"),
        (gif((3, 2), b";"), "without an image"),
        (gif((3, 2), b"x"), "bytes between its blocks"),
        (gif((3, 2), picture(0, 0, 3, 2)[:-1]), "ends within its header"),
        (webp(b"VP8X", b"\x02" + bytes(9)), "is animated"),
        (webp(b"VP8X", b"\x10\0\0\0\x01\0\0\x02\0"), "ends within its header"),
        (webp(b"VP8 ", b"abcdef\x07\x00\x08\x00"), "unknown kind"),
    ],
)
def test_what_is_no_still_image_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableImage, match=why):
        dimensions(data)


MAGIC = [PNG_MAGIC, b"\xff\xd8\xff", b"GIF89a", b"RIFF0000WEBPVP8X", b"RIFF0000WEBPVP8 "]


@given(st.sampled_from(MAGIC), st.binary(max_size=80))
@example(b"\xff\xd8\xff", b"\xc0\x00\x00" * 9)
def test_any_bytes_have_a_size_or_are_refused(magic: bytes, rest: bytes) -> None:
    try:
        found = dimensions(magic + rest)
    except UnreadableImage:
        return
    assert isinstance(found, Dimensions)
    assert found.pixels > 0
