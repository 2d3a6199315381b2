"""What the first bytes of an image say, and that nothing else is believed."""

import struct
import zlib
from io import BytesIO
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.costs import thread_seconds

from windlass.inference_api.images.dimensions import Dimensions, UnreadableImage, dimensions

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG_END = chunk(b"IEND", b"")


def header(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))


def png(width: int, height: int, *between: bytes, after: tuple[bytes, ...] = (PNG_END,)) -> bytes:
    pixels = chunk(b"IDAT", zlib.compress(bytes(min((width + 1) * height, 100))))
    return b"".join((PNG_MAGIC, header(width, height), *between, pixels, *after))


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


def hidden(marker: bytes) -> bytes:
    """A small frame, and a large one in what a length after a marker lets a reader skip."""
    large = frame(9000, 9000)
    skipped = struct.pack(">H", len(large) + 2) + large
    return jpeg(frame(1, 1), b"\xff" + marker + skipped)


EXTENSION = b"\x21\xf9\x04abcd\x00"
# Pillow takes the terminator of each for its first part of data, and what follows for another: of
# 44 bytes, as many as the first byte of an image says, with the end of the file and of the part.
SWALLOWED = picture(0, 0, 1, 1) + b";" + bytes(44 - 14 + 1)
EMPTY = b"\x21\x01\x00"
NETSCAPE = b"\x21\xff\x0bNETSCAPE2.0\x00"


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
        (PNG_MAGIC + header(3, 2), "without its end"),
        (PNG_MAGIC + header(3, 2) + PNG_END, "without pixels"),
        (png(3, 2, after=()), "without its end"),
        (png(3, 2)[:-1], "without its end"),
        (png(3, 2)[: -len(PNG_END) - 1], "ends within a chunk"),
        (png(3, 2, after=(struct.pack(">I4s", 2**31, b"tEXt"), PNG_END)), "ends within a chunk"),
        (png(3, 2, after=(chunk(b"\x01\x02\x03\x04", b""), PNG_END)), "not four letters"),
        (png(3, 2, chunk(b"a_bc", b"")), "not four letters"),
        (png(3, 2, after=(chunk(b"fcTL", bytes(26)), PNG_END)), "is animated"),
        (png(3, 2, after=(chunk(b"iCCP", b"a\0\x01"), PNG_END)), "wrong chunk"),
        (png(3, 2, after=(chunk(b"zTXt", b"a\0\x01"), PNG_END)), "wrong chunk"),
        # A decoder would take the last one of each.
        (png(3, 2, header(60_000, 60_000)), "two headers"),
        (jpeg(frame(3, 2), frame(60_000, 60_000)), "without one size"),
        (png(3, 2, *[chunk(b"tEXt", b"")] * 5000), r"more than \d+ chunks"),
        (jpeg(*[segment(0xE0, b"")] * 5000), "more than 4096 segments"),
        (jpeg(), "without one size"),
        (jpeg(frame(3, 0)), "has no pixels"),
        (jpeg(frame(3, 2), b"x"), "bytes between its segments"),
        # After these Pillow finds what lies in the bytes that their length would skip.
        (hidden(b"\x00"), "a marker 0x00"),
        (hidden(b"\x02"), "a marker 0x02"),
        (hidden(b"\xbf"), "a marker 0xbf"),
        (hidden(b"\xc8"), "a marker 0xc8"),
        (hidden(b"\xf0"), "a marker 0xf0"),
        (jpeg(frame(1, 1), b"\xff\xd8", frame(1, 1)), "a marker 0xd8"),
        # Pillow reads on after an end, and takes the size of a hierarchy for that of a frame.
        (jpeg(frame(1, 1), b"\xff\xd9", frame(9000, 9000)), "a marker 0xd9"),
        (jpeg(frame(1, 1), frame(9000, 9000, 0xDE)), "a marker 0xde"),
        (png(3, 2, chunk(b"acTL", bytes(8))), "is animated"),
        (gif((3, 2), picture(0, 0, 3, 2), picture(0, 0, 3, 2)), "is animated"),
        (gif((3, 2), b";"), "without an image"),
        (gif((1, 1), EMPTY, SWALLOWED), "an empty extension"),
        (gif((1, 1), NETSCAPE, SWALLOWED), "an empty extension"),
        (gif((3, 2), b"\x21\xfe" + b"\x01x" * 9000 + b"\0"), r"more than \d+ sub-blocks"),
        (gif((3, 2), picture(0, 0, 3, 2)[:-3] + b"\x01x" * 9000 + b"\0"), r"more than \d+ sub"),
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


# A large image, told from the small one before it where Pillow and a reader of the format differ.
LARGE = 9000


def by_pillow(data: bytes) -> Any:
    return pytest.importorskip("PIL.Image").open(BytesIO(data))


@pytest.mark.parametrize(
    "data",
    [
        hidden(b"\x00"),
        hidden(b"\xc8"),
        hidden(b"\xf0"),
        jpeg(frame(1, 1), b"\xff\xd9", frame(LARGE, LARGE)),
        jpeg(frame(1, 1), frame(LARGE, LARGE, 0xDE)),
        gif((1, 1), EMPTY, SWALLOWED, picture(0, 0, LARGE, LARGE), b";"),
        gif((1, 1), NETSCAPE, SWALLOWED, picture(0, 0, LARGE, LARGE), b";"),
    ],
)
def test_what_pillow_reads_larger_is_refused(data: bytes) -> None:
    assert by_pillow(data).size == (LARGE, LARGE)
    with pytest.raises(UnreadableImage):
        dimensions(data)


@pytest.mark.parametrize(
    "data",
    [
        # More pixels are looked for in the chunk that follows.
        png(4000, 4000, after=(chunk(b"\x01\x02\x03\x04", b""), PNG_END)),
        png(3, 2, after=(chunk(b"fcTL", b"\x01" * 26), PNG_END)),
        png(3, 2, after=(chunk(b"iCCP", b"a\0\x01"), PNG_END)),
        png(3, 2, after=(chunk(b"zTXt", b"a\0\x01"), PNG_END)),
    ],
)
def test_what_fails_in_pillow_as_no_image_does_is_refused(data: bytes) -> None:
    with pytest.raises(SyntaxError):
        by_pillow(data).load()
    with pytest.raises(UnreadableImage):
        dimensions(data)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("PNG", {}),
        ("PNG", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}),
        ("JPEG", {"quality": 95, "comment": b"made here"}),
        ("JPEG", {"progressive": True, "restart_marker_rows": 1}),
        ("GIF", {"comment": b"made here"}),
        ("GIF", {"loop": 0}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
    ],
)
def test_what_pillow_writes_has_the_size_that_it_reads(kind: str, told: dict[str, Any]) -> None:
    image = pytest.importorskip("PIL.Image").effect_noise((700, 500), 90)
    image.convert("RGB").save(file := BytesIO(), kind, **told)
    found = dimensions(file.getvalue())
    assert found == (f"image/{kind.lower()}", *by_pillow(file.getvalue()).size)


@pytest.mark.parametrize("part", [255, 1024, 8192])
def test_an_image_of_many_parts_is_read_in_a_moment(part: int) -> None:
    pixels = [chunk(b"IDAT", bytes(part))] * (2**24 // part)
    image = png(4000, 4000, *pixels)
    assert dimensions(image) == ("image/png", 4000, 4000)
    assert thread_seconds(lambda: dimensions(image)) < 2


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
