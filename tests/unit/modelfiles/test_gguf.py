"""Headers of GGUF, against the library that writes them, and models of such files."""

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.client.resources.models import model_files
from windlass.modelfiles import (
    PREFIX_BYTES,
    RefusedDocument,
    TensorFacts,
    check_files,
    check_header,
    check_model,
    header_bytes,
)
from windlass.modelfiles.quantization import Quantization, quantization_of
from windlass.modelfiles.weights.gguf import _TYPES, MAX_HEADER_BYTES

NAME = "model.gguf"


def check(content: bytes) -> TensorFacts:
    end = PREFIX_BYTES + header_bytes(NAME, content[:PREFIX_BYTES], len(content))
    return check_header(NAME, content[PREFIX_BYTES:end], len(content))


def refusal(content: bytes) -> str:
    with pytest.raises(RefusedDocument) as caught:
        check(content)
    assert caught.value.reason == "damaged_weights"
    assert caught.value.message.startswith(f"'{NAME}' is damaged: ")
    return caught.value.message


def written(folder: Path, **more: Any) -> bytes:
    """A file with a vocabulary, values of every kind, and tensors of three types."""
    writer = gguf.GGUFWriter(folder / NAME, "llama")
    writer.add_context_length(512)
    writer.add_token_list([f"token-{at}" for at in range(100)])
    writer.add_token_scores([0.5] * 100)
    writer.add_bool("windlass.yes", True)
    writer.add_float64("windlass.pi", 3.14)
    writer.add_int8("windlass.small", -1)
    if "alignment" in more:
        writer.add_custom_alignment(more["alignment"])
    writer.add_tensor("norm", np.ones(7, dtype=np.float32))
    writer.add_tensor("half", np.ones((3, 5), dtype=np.float16))
    packed = np.zeros((64, 144), dtype=np.uint8)
    writer.add_tensor("packed", packed, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (folder / NAME).read_bytes()


@pytest.mark.parametrize("more", [{}, {"alignment": 64}])
def test_what_the_library_writes_passes_and_tells_its_bits(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    facts = check(written(tmp_path, **more))
    assert facts.sizes == {"F32": 28, "F16": 30, "Q4_K": 64 * 144}
    assert quantization_of({"model_type": "llama"}, facts) == Quantization("gguf", 4)
    plain = TensorFacts(is_gguf=True)
    plain.sizes["F16"] = 8
    assert quantization_of({"quantization_config": {"bits": 2}}, plain) == Quantization("gguf", 16)


def test_types_are_as_long_as_the_library_says() -> None:
    for kind, (block, size) in gguf.GGML_QUANT_SIZES.items():
        if kind in _TYPES:
            assert _TYPES[kind] == (kind.name, block, size)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("gguf"))


@given(st.data())
def test_a_file_that_is_cut_or_changed_is_read_without_a_fault(
    whole: bytes, data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(whole) - 40))
    assert "damaged" in refusal(whole[:length])
    at, letter = data.draw(st.integers(8, 2000)), data.draw(st.binary(min_size=1, max_size=8))
    changed = whole[:at] + letter + whole[at + len(letter) :]
    with suppress(RefusedDocument):
        check(changed)


def made(*parts: bytes, tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + b"".join(parts)


def text(words: bytes) -> bytes:
    return struct.pack("<Q", len(words)) + words


def tensor(name: bytes, shape: list[int], kind: int, offset: int) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + dimensions + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"version https://git-lfs", "does not begin as a GGUF file does"),
        (made(version=1), "its version of GGUF is 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "its version of GGUF is 50331648"),
        (made(tensors=2**40), "100,000 is possible"),
        (made(keys=2**63), "10,000 is possible"),
        (made(text(b"k"), struct.pack("<I", 99), keys=1), "a value of the type 99"),
        # An array of arrays, and one longer than any file.
        (made(text(b"k"), struct.pack("<IIQ", 9, 9, 1), keys=1), "a value of the type 9"),
        (made(text(b"k"), struct.pack("<IIQ", 9, 12, 2**24), keys=1), "ends within its header"),
        (made(text(b"k"), struct.pack("<IIQ", 9, 8, 2**62), keys=1), "is possible"),
        (made(struct.pack("<Q", 2**62), keys=1), "1,024 is possible"),
        (made(text(b"general.alignment"), struct.pack("<II", 4, 3), keys=1), "alignment is 3"),
        (made(tensor(b"t", [3], 2, 0), b"0" * 64, tensors=1), "has the shape [3]"),
        (made(tensor(b"t", [3], 99, 0), b"0" * 64, tensors=1), "has the type 99"),
        (made(tensor(b"t", [2**30, 2**30], 0, 0), tensors=1), "has the shape"),
        (made(tensor(b"t", [8], 0, 32), b"0" * 99, tensors=1), "does not follow the one before"),
        (made(tensor(b"t", [8], 0, 0), tensors=1), "cut short"),
        (made(tensor(b"t", [8], 0, 0), b"0" * 999, tensors=1), "longer than its header says"),
    ],
)
def test_what_llama_cpp_must_not_read_is_refused(content: bytes, words: str) -> None:
    assert words in refusal(content)


def test_a_first_part_may_have_no_tensors() -> None:
    check(made())
    assert "longer" in refusal(made() + b"0" * 64)


def test_a_header_is_read_to_its_bound() -> None:
    assert header_bytes(NAME, made()[:8], 2**40) == MAX_HEADER_BYTES


def model(folder: Path, content: bytes, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "tokenizer.json").write_text("{}")
    for name in names:
        (folder / name).write_bytes(content)
    return folder


def test_a_folder_has_its_weights_in_one_form(tmp_path: Path, whole: bytes) -> None:
    one = model(tmp_path / "one", whole, NAME)
    assert NAME in model_files(one)
    check_files(model_files(one))
    two = model(tmp_path / "two", whole, "a.Q4_K.gguf", "b.Q8_0.gguf")
    with pytest.raises(RefusedDocument, match="several GGUF models") as caught:
        check_files(model_files(two))
    assert caught.value.reason == "invalid_manifest"
    parts = [f"m-{at:05}-of-00002.gguf" for at in (1, 2)]
    check_files(model_files(model(tmp_path / "parts", whole, *parts)))
    with pytest.raises(RefusedDocument, match=r"'m-00002-of-00002\.gguf' is missing"):
        check_files(model_files(model(tmp_path / "lost", whole, parts[0])))
    # Where there are safetensors, those are sent.
    both = model(tmp_path / "both", whole, NAME, "model.safetensors")
    assert NAME not in model_files(both)
    sizes = dict.fromkeys(("config.json", "tokenizer.json", "model.safetensors", NAME), 10)
    with pytest.raises(RefusedDocument, match="cannot lie beside safetensors"):
        check_model(sizes)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["m.GGUF"], r"'m\.GGUF' must end in '\.gguf'"),
        (["m-00001-of-00002.GGUF"], r"must end in '\.gguf', in lower case"),
        (["m-00001-of-00002.gguf", "m-00002-of-00002.Gguf"], "in lower case"),
        (["m-00001-of-00000.gguf"], "of 0 parts there is no 1"),
        (["m-00001-of-00001.gguf", "m-00002-of-00001.gguf"], "of 1 parts there is no 2"),
        (["m-00000-of-00001.gguf", "m-00001-of-00001.gguf"], "of 1 parts there is no 0"),
        (
            ["m-00001-of-00001.gguf", "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"],
            "several GGUF models \\(m-of-00001, m-of-00002\\)",
        ),
        (["m.gguf", "m-00001-of-00001.gguf"], "several GGUF models"),
        (["m-00002-of-00002.gguf"], r"'m-00001-of-00002\.gguf' is missing"),
    ],
)
def test_parts_that_are_no_whole_model_are_refused(names: list[str], words: str) -> None:
    with pytest.raises(RefusedDocument, match=words):
        check_model(dict.fromkeys(("config.json", "tokenizer.json", *names), 10))
