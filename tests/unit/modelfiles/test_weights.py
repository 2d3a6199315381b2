"""Headers of safetensors, against the library that writes them."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save
from tests.support.factories.feather import FEATHER, make_feather, weights

from windlass.client.resources.models import model_files
from windlass.modelfiles import (
    PREFIX_BYTES,
    RefusedDocument,
    check_files,
    check_header,
    header_bytes,
)

NAME = "model.safetensors"


def check(content: bytes) -> None:
    end = PREFIX_BYTES + header_bytes(NAME, content[:PREFIX_BYTES], len(content))
    check_header(NAME, content[PREFIX_BYTES:end], len(content))


def refusal(content: bytes) -> str:
    with pytest.raises(RefusedDocument) as caught:
        check(content)
    assert caught.value.reason == "damaged_weights"
    assert caught.value.message.startswith(f"'{NAME}' is damaged: ")
    return caught.value.message


def made(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(begin: int, end: int, shape: list[int] | None = None, dtype: str = "U8") -> Any:
    return {"dtype": dtype, "shape": shape or [end - begin], "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]
)
def test_what_the_library_writes_passes(dtype: torch.dtype) -> None:
    tensors = {"a": torch.zeros(3, 5, dtype=dtype), "b": torch.zeros((), dtype=dtype)}
    check(save(tensors, metadata={"format": "pt"}))
    check(save({"none": torch.zeros(0, 4, dtype=dtype)}))


@given(st.integers(0, 1100))
def test_a_file_that_is_cut_anywhere_is_refused(length: int) -> None:
    whole = weights(1000)
    if length < len(whole):
        refusal(whole[:length])


def test_the_refusal_tells_the_lengths() -> None:
    whole = weights(1000)
    assert f"it is cut short, with {len(whole) - 1:,} of {len(whole):,} bytes" in refusal(
        whole[:-1]
    )
    assert "longer than its header says" in refusal(whole + b"x")


@pytest.mark.parametrize(
    ("header", "data"),
    [
        ({"a": tensor(1, 5)}, b"12345"),
        ({"a": tensor(0, 4), "b": tensor(2, 6)}, b"123456"),
        ({"a": tensor(0, 4), "b": tensor(5, 6)}, b"123456"),
        ({"a": tensor(4, 0, [4])}, b"1234"),
        ({"a": tensor(0, 4, [3])}, b"1234"),
        ({"a": tensor(0, 4, [2], "F32")}, b"1234"),
        ({"a": tensor(0, 4, dtype="F128")}, b"1234"),
        ({"a": tensor(-4, 0)}, b""),
        ({"a": tensor(0, 0, [2**54, 0])}, b""),
        ({"a": tensor(0, 1, [1] * 65)}, b"1"),
        ({"a": {"dtype": "U8"}}, b""),
        ({"__metadata__": {"a": 1}}, b""),
        ([], b""),
        (b"{", b""),
        (b"\xff\xfe", b""),
        (b"[" * 100_000, b""),
        (b"", b""),
    ],
)
def test_a_header_that_does_not_fit_is_refused(header: Any, data: bytes) -> None:
    refusal(made(header, data))


def test_a_file_of_another_kind_is_refused() -> None:
    for content in (b"PK\x03\x04" + b"x" * 100, b"GGUF" * 30):
        refusal(content)
    assert "a pointer of Git LFS" in refusal(b"version https://git-lfs.github.com/spec/v1")


def test_a_folder_is_refused_with_the_name_of_its_file(tmp_path: Path) -> None:
    folder = make_feather(tmp_path / "feather")
    check_files(model_files(folder))
    index = {"weight_map": {"a": "b-00001-of-00002.safetensors", "b": NAME}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(RefusedDocument, match=r"names 'b-00001-of-00002\.safetensors', which is"):
        check_files(model_files(folder))
    (folder / "b-00001-of-00002.safetensors").write_bytes(weights())
    with pytest.raises(RefusedDocument, match=r"'b-00002-of-00002\.safetensors' is missing"):
        check_files(model_files(folder))
    (folder / "b-00002-of-00002.safetensors").write_bytes(weights()[:-1])
    with pytest.raises(RefusedDocument, match=r"'b-00002-of-00002\.safetensors' is damaged"):
        check_files(model_files(folder))


def test_what_is_hidden_is_not_sent(tmp_path: Path) -> None:
    folder = make_feather(tmp_path / "feather")
    for hidden in (".cache", "__pycache__", ".ipynb_checkpoints", "original/.git"):
        (folder / hidden).mkdir(parents=True)
        (folder / hidden / "x.json").write_text("{}")
    (folder / ".x.json").write_text("{}")
    (folder / "weights.bin").write_bytes(b"")
    assert model_files(folder).keys() == FEATHER.keys()
