"""A file in a foreign format is refused with the conversion that would help."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from windlass.datasets import DatasetError, inspect_file


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (line(instruction="a", input="", output="b"), "Alpaca"),
        (line(conversations=[{"from": "human", "value": "a"}]), "ShareGPT"),
        (line(messages=[{"from": "human", "value": "a"}]), "chat"),
        (line(prompt="a", completion="b"), "prompt and completion"),
        (line(prompt="a", chosen="b", rejected="c"), "chosen and rejected"),
        (line(input="a", preferred_output="b", non_preferred_output="c"), "chosen and rejected"),
        (b'[{"instruction": "a"}]', "a JSON array"),
        (b"[\n  {}\n]", "a JSON array"),
        (b"[" + b" " * 9 * 2**20, "a JSON array"),
        (b'"Prompt","Completion"\na,b', "a CSV file"),
        (gzip.compress(line(messages=[]), mtime=0), "a gzip file"),
        (pa.compress(line(messages=[]), codec="zstd", asbytes=True), "a zstd file"),
        (b"PAR1\x15\x04", "a Parquet file"),
    ],
)
def test_a_foreign_file_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=f"looks like {said}.*`windlass files convert"):
        inspect_file(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04", "a zip file: unpack it"),
        (b'{\n  "messages": []\n}', "must stand on one line"),
    ],
)
def test_what_no_conversion_helps_is_named_too(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=said):
        inspect_file(path)


@pytest.mark.parametrize(
    "content",
    [
        b'{"messages": [{"role": "user"}]}',
        b'{"prompt": [], "completion": [], "label": 5}',
        b'{"input": {}, "preferred_output": [], "non_preferred_output": []}',
        b'{"messages": [{"role": "user", "content": "a"}], "chosen": 1, "rejected": 2}',
        b"{",
    ],
)
def test_a_fault_within_a_training_file_gets_no_hint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows"
    path.write_bytes(content + b"\n{}")
    with pytest.raises(DatasetError) as caught:
        inspect_file(path)
    assert "convert" not in caught.value.message
