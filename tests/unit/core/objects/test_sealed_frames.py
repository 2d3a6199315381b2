"""The sealed form of objects: any content in any pieces, any range, and every kind of tampering."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.objects.sealing import project_of
from windlass.core.objects.sealing.frames import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAGIC,
    SEALED_FRAME_BYTES,
    TAG_BYTES,
    FrameCipher,
    FrameWriter,
    Header,
    new_header,
    open_frames,
    parse_header,
    plain_bytes,
    sealed_bytes,
)

KEY = b"k" * 32
# Sizes about the edges of frames, and any others.
SIZES = st.one_of(
    st.integers(0, 3).flatmap(
        lambda frames: st.integers(-2, 2).map(lambda more: max(0, frames * FRAME_BYTES + more))
    ),
    st.integers(0, 4 * FRAME_BYTES),
)


def content_of(size: int) -> bytes:
    return bytes(number % 251 for number in range(size))


def cipher(header: Header, name: str = "files/proj_a/file-1", key: bytes = KEY) -> FrameCipher:
    return FrameCipher(key, header, name)


def sealed(header: Header, content: bytes, step: int = FRAME_BYTES) -> bytes:
    writer = FrameWriter(cipher(header))
    parts = [writer.add(content[at : at + step]) for at in range(0, len(content), step)]
    return b"".join([bytes(header), *parts, writer.finish()])


def frames_of(stored: bytes) -> list[bytes]:
    body = stored[HEADER_BYTES:]
    return [body[at : at + SEALED_FRAME_BYTES] for at in range(0, len(body), SEALED_FRAME_BYTES)]


def opened(header: Header, stored: bytes, by: FrameCipher | None = None) -> bytes:
    last = max(0, plain_bytes(len(stored)) - 1) // FRAME_BYTES
    return open_frames(by or cipher(header), stored[HEADER_BYTES:], first=0, last=last)


def opened_by_header(stored: bytes) -> bytes:
    header = parse_header(stored[:HEADER_BYTES])
    assert header is not None
    return opened(header, stored)


@given(size=SIZES, step=st.integers(1000, 2 * FRAME_BYTES + 5))
def test_what_is_sealed_in_any_pieces_opens(size: int, step: int) -> None:
    header, content = new_header("okey_1"), content_of(size)
    stored = sealed(header, content, step)
    assert len(stored) == sealed_bytes(size)
    assert plain_bytes(len(stored)) == size
    assert parse_header(stored[:HEADER_BYTES]) == header
    assert opened(header, stored) == content


@given(size=SIZES.filter(bool), data=st.data())
def test_any_frames_open_alone(size: int, data: st.DataObject) -> None:
    header, content = new_header("okey_1"), content_of(size)
    stored, last = sealed(header, content), (size - 1) // FRAME_BYTES
    first = data.draw(st.integers(0, last))
    end = data.draw(st.integers(first, last))
    part = b"".join(frames_of(stored)[first : end + 1])
    plain = open_frames(cipher(header), part, first=first, last=last)
    assert plain == content[first * FRAME_BYTES : (end + 1) * FRAME_BYTES]


@given(size=SIZES, data=st.data())
def test_a_bit_that_flips_is_noticed(size: int, data: st.DataObject) -> None:
    header = new_header("okey_1")
    stored = bytearray(sealed(header, content_of(size)))
    place = data.draw(st.integers(HEADER_BYTES, len(stored) - 1))
    stored[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(ValueError):
        opened(header, bytes(stored))


@given(place=st.integers(0, HEADER_BYTES - 1), bit=st.integers(0, 7))
def test_a_header_that_changes_is_noticed(place: int, bit: int) -> None:
    header = new_header("okey_1")
    stored = bytearray(sealed(header, b"content"))
    stored[place] ^= 1 << bit
    if place < len(MAGIC):
        assert parse_header(bytes(stored[:HEADER_BYTES])) is None
        return
    with pytest.raises(ValueError):
        opened_by_header(bytes(stored))


@given(size=SIZES, cut=st.integers(1, 2 * SEALED_FRAME_BYTES))
def test_what_is_cut_does_not_open(size: int, cut: int) -> None:
    header = new_header("okey_1")
    stored = sealed(header, content_of(size))
    with pytest.raises(ValueError):
        opened(header, stored[: max(0, len(stored) - cut)])


def test_frames_that_are_swapped_repeated_or_left_out_do_not_open() -> None:
    header = new_header("okey_1")
    stored = sealed(header, content_of(3 * FRAME_BYTES + 9))
    one, two, three, end = frames_of(stored)
    for order in ([two, one, three, end], [one, one, three, end], [one, three, end], [one, two]):
        with pytest.raises(ValueError):
            opened(header, b"".join([stored[:HEADER_BYTES], *order]))


def test_frames_open_under_their_name_key_and_object_alone() -> None:
    header, content = new_header("okey_1"), content_of(FRAME_BYTES + 1)
    stored = sealed(header, content)
    with pytest.raises(ValueError):
        opened(header, stored, cipher(header, name="files/proj_a/file-2"))
    with pytest.raises(ValueError):
        opened(header, stored, cipher(header, key=b"o" * 32))
    with pytest.raises(ValueError):
        opened(new_header("okey_1"), stored)


@pytest.mark.parametrize("stored", [0, HEADER_BYTES, HEADER_BYTES + TAG_BYTES - 1])
def test_sizes_that_no_sealed_object_has(stored: int) -> None:
    with pytest.raises(ValueError):
        plain_bytes(stored)
    with pytest.raises(ValueError):
        plain_bytes(HEADER_BYTES + SEALED_FRAME_BYTES + TAG_BYTES)


@pytest.mark.parametrize("beginning", [b"", MAGIC, b"\0" * HEADER_BYTES, b'{"messages": []}' * 9])
def test_other_objects_have_no_header(beginning: bytes) -> None:
    assert parse_header(beginning) is None


@pytest.mark.parametrize(
    ("key", "project"),
    [
        ("files/proj_a/file-1", "proj_a"),
        ("artifacts/proj_a/ftjob-1/1/checkpoint-2/a/b.bin", "proj_a"),
        ("logs/proj_a/ftjob-1/1/0", "proj_a"),
        ("models/proj_a/mv-1/config.json", "proj_a"),
        ("exports/org-1/export_1/files/proj_a/part_1", "proj_a"),
        ("logs/ftjob-1/1/0", ""),
        ("models/mv-1/proj_a/config.json", ""),
        ("exports/org-1/export_1/files/part_1", ""),
        ("exports/org-1/proj_a/files/part_1", ""),
        ("audit/proj_a/1", ""),
        ("files/proj_a", ""),
        ("", ""),
    ],
)
def test_a_key_names_its_project_in_one_place(key: str, project: str) -> None:
    assert project_of(key) == project


@pytest.mark.parametrize("name", [b"", b"a\0b", b"\xff", b"'; --"])
def test_a_header_names_a_key(name: bytes) -> None:
    with pytest.raises(ValueError, match="names no key"):
        parse_header(MAGIC + name.ljust(32, b"\0") + b"s" * 32)
    with pytest.raises(ValueError, match="letters"):
        new_header(name.decode("latin-1"))
