import gzip
import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.datasets import examples

from windlass.datasets import DatasetError, inspect_file
from windlass.datasets.checking import FileCheck, check_file
from windlass.datasets.faults import MAX_KINDS, MAX_LINES
from windlass.datasets.token_counts import ApproximateTokenizer, TokenCounts

CHAT = b'{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}'
BROKEN = b'{"messages":[{"role":"user"}]}'
in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(folder: Path, content: bytes, *, read: str | None = None) -> FileCheck:
    path = folder / "rows.jsonl"
    path.write_bytes(content)
    return check_file(path, TokenCounts(ApproximateTokenizer(), 2048), read=read)


def test_every_line_is_checked_and_faults_are_grouped(tmp_path: Path) -> None:
    lines = [CHAT, BROKEN, b"{", BROKEN, CHAT, b'{"prompt":[],"completion":[],"label":true}', b"{"]
    found = check(tmp_path, b"\n".join(lines))
    assert (found.format, found.examples, found.faults.count) == ("chat", 2, 5)
    kinds = [(fault.count, fault.lines, fault.reason) for fault in found.faults.kinds]
    assert kinds == [
        (2, [2, 4], "invalid_message"),
        (2, [3, 7], "invalid_json"),
        (1, [6], "mixed_formats"),
    ]


def test_the_first_lines_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    found = check(tmp_path, b"\n".join([BROKEN] * 70 + [b"{"]))
    most, other = found.faults.kinds
    assert (most.count, len(most.lines), other.count, other.lines) == (70, MAX_LINES, 1, [])


def test_kinds_are_bounded(tmp_path: Path) -> None:
    rows = [json.dumps({"messages": [{"role": "user", f"x{n}": 1}]}).encode() for n in range(99)]
    found = check(tmp_path, b"\n".join(rows))
    assert (found.faults.count, len(found.faults.kinds)) == (99, MAX_KINDS)


def test_another_kind_of_file_is_one_fault(tmp_path: Path) -> None:
    content = gzip.compress(b"\n".join([CHAT] * 2000), compresslevel=0)
    (fault,) = check(tmp_path, content).faults.kinds
    assert (fault.count, "windlass files convert" in fault.message) == (1, True)


def test_a_method_that_reads_something_else_refuses_every_line(tmp_path: Path) -> None:
    (fault,) = check(tmp_path, b"\n".join([CHAT] * 3), read="preference").faults.kinds
    assert (fault.count, fault.lines, fault.reason) == (3, [1, 2, 3], "wrong_format")


def test_an_empty_file_and_a_line_too_long_are_faults(tmp_path: Path) -> None:
    assert check(tmp_path, b"\n").faults.kinds[0].reason == "empty_file"
    found = check(tmp_path, CHAT + b"\n" + b"x" * 9 * 2**20 + b"\n" + CHAT)
    assert [fault.reason for fault in found.faults.kinds] == ["line_too_long"]


@in_folder
@given(
    st.lists(
        examples.examples.map(examples.line)
        | st.sampled_from([CHAT, BROKEN, b"", b"{", b"[]", b"\xff"])
        | st.binary(max_size=20),
        max_size=5,
    )
)
def test_a_file_is_sound_just_when_its_inspection_says_so(
    tmp_path: Path, lines: list[bytes]
) -> None:
    found = check(tmp_path, b"\n".join(lines))
    try:
        summary = inspect_file(tmp_path / "rows.jsonl")
    except DatasetError:
        assert found.faults.count
    else:
        assert (found.faults.count, found.examples) == (0, summary.examples)
