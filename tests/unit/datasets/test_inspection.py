import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.datasets import examples

from windlass.datasets import (
    ChatExample,
    DatasetError,
    FileSummary,
    Inspector,
    inspect_file,
    read_examples,
)
from windlass.datasets.lines import MAX_LINE_BYTES

CHAT = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}'
PREFERENCE = (
    b'{"input":{"messages":[{"role":"user","content":"a"}]},'
    b'"preferred_output":[{"role":"assistant","content":"a"}],'
    b'"non_preferred_output":[{"role":"assistant","content":"b"}]}'
)
lines = st.one_of(
    examples.examples.map(examples.line),
    st.sampled_from([b"", b"  ", CHAT, CHAT, b"{", b"\xff", b"[]", b'{"messages": []}']),
)


def outcome(*chunks: bytes) -> Any:
    inspector = Inspector()
    try:
        for chunk in chunks:
            inspector.feed(chunk)
        return inspector.finish()
    except DatasetError as error:
        return error.line, error.reason, error.message, error.param


@given(
    st.lists(lines, max_size=4),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.integers(min_value=0, max_value=2000), max_size=8),
)
def test_chunk_boundaries_change_nothing(
    rows: list[bytes], newline: bytes, bom: bytes, cuts: list[int]
) -> None:
    data = bom + newline.join(rows)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    chunks = [data[start:end] for start, end in pairwise(edges)]
    assert outcome(*chunks) == outcome(data)
    assert outcome(*(data[i : i + 1] for i in range(len(data)))) == outcome(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (CHAT, FileSummary("chat", 1, 79)),
        (CHAT + b"\n", FileSummary("chat", 1, 80)),
        (b"\xef\xbb\xbf" + CHAT + b"\r\n\r\n" + CHAT, FileSummary("chat", 2, 165)),
        (b"\n \t\n" + PREFERENCE + b"\n\n", FileSummary("preference", 1, len(PREFERENCE) + 6)),
    ],
)
def test_a_sound_file_is_summed_up(data: bytes, expected: FileSummary) -> None:
    assert outcome(data) == expected


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n \r\n", b"\xef\xbb\xbf"])
def test_a_file_without_examples_is_refused(data: bytes) -> None:
    assert outcome(data) == (None, "empty_file", "The file contains no examples.", None)


@pytest.mark.parametrize(("first", "second"), [(CHAT, PREFERENCE), (PREFERENCE, CHAT)])
def test_two_formats_in_one_file_are_refused(first: bytes, second: bytes) -> None:
    inspector = Inspector()
    with pytest.raises(DatasetError) as caught:
        inspector.feed(first + b"\n\n" + second + b"\n")
    assert (caught.value.line, caught.value.reason) == (3, "mixed_formats")
    assert str(caught.value).startswith("Line 3: This is a ")


def test_an_endless_line_is_refused_before_it_fills_memory() -> None:
    inspector = Inspector()
    inspector.feed(CHAT + b"\n")
    chunk = b"x" * (1 << 20)
    tracemalloc.start()
    for _ in range(MAX_LINE_BYTES // len(chunk)):
        inspector.feed(chunk)
    with pytest.raises(DatasetError) as caught:
        inspector.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (caught.value.line, caught.value.reason) == (2, "line_too_long")
    assert peak < 4 * MAX_LINE_BYTES


def test_a_long_file_takes_the_memory_of_a_chunk() -> None:
    inspector = Inspector()
    chunk = (CHAT + b"\n") * 10_000
    inspector.feed(chunk)
    tracemalloc.start()
    for _ in range(20):
        inspector.feed(chunk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert inspector.finish().examples == 210_000
    assert peak < 4 * len(chunk)


def test_a_line_of_the_longest_length_passes() -> None:
    padding = b" " * (MAX_LINE_BYTES - len(CHAT))
    assert outcome(CHAT + padding + b"\n" + CHAT) == FileSummary("chat", 2, MAX_LINE_BYTES + 80)
    assert outcome(CHAT + padding + b" \n" + CHAT)[1] == "line_too_long"


def test_a_file_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(CHAT + b"\n" + CHAT)
    assert inspect_file(path) == FileSummary("chat", 2, 159)


def test_examples_are_read_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + CHAT + b"\r\n\n" + CHAT)
    assert [(n, type(example)) for n, example in read_examples(path)] == [
        (1, ChatExample),
        (3, ChatExample),
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "empty_file"), (CHAT + b"\n" + PREFERENCE, "mixed_formats"), (b"{", "invalid_json")],
)
def test_reading_refuses_what_checking_refuses(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(data)
    with pytest.raises(DatasetError) as caught:
        list(read_examples(path))
    assert caught.value.reason == reason
    assert outcome(data)[1] == reason
