"""Manifests: what may come in, and what never."""

import json
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.core.errors import AppError, InvalidArgument
from windlass.modelfiles import RefusedDocument, check_path
from windlass.models.domain import artifact_prefix, import_name
from windlass.models.manifest import (
    Manifest,
    ManifestFile,
    check_document,
    check_import,
    footprint_of,
)
from windlass_agent.download.transfer import safe_path

DIGEST = bytes(32)
WHOLE = ("config.json", "model.safetensors", "tokenizer.json")


def manifest(*paths: str, size: int = 1) -> Manifest:
    return Manifest.of(ManifestFile(path, size, DIGEST) for path in paths)


def refused(*paths: str) -> str:
    with pytest.raises(InvalidArgument) as caught:
        check_import(manifest(*paths))
    return caught.value.message


@given(st.text(max_size=40) | st.from_regex(r"[./\\a~\0 ]{1,12}"))
@example("../x")
@example("a/../b")
@example("/etc/passwd")
@example("a//b")
@example("C:\\x")
@example("a/.")
@example(".hidden")
@example("a\n")
def test_a_path_that_is_taken_stays_in_its_folder(path: str) -> None:
    try:
        check_path(path)
    except RefusedDocument:
        return
    pure = PurePosixPath("/root") / path
    assert str(pure) == f"/root/{path}"
    assert ".." not in pure.parts
    assert path.isascii()
    assert not set(path) & set("\\\0\n:~ ")
    # The agent takes what the control plane takes.
    assert safe_path(path) == path


@given(st.lists(st.sampled_from(["a", "A", "b", "a/b", "A/c", "b/c/d"]), min_size=1, max_size=4))
def test_no_two_files_can_be_one_on_any_disk(paths: list[str]) -> None:
    try:
        taken = manifest(*paths)
    except InvalidArgument:
        return
    lower = [file.path.lower() for file in taken.files]
    assert len(set(lower)) == len(lower)
    for path in lower:
        assert not any(other.startswith(f"{path}/") for other in lower)


def test_a_whole_model_passes() -> None:
    check_import(manifest(*WHOLE, "LICENSE", "README.md", "chat_template.jinja", "sub/notes.txt"))


@pytest.mark.parametrize(
    "path",
    ["pytorch_model.bin", "a.PT", "x.pth", "x.ckpt", "x.pkl", "modeling.py", "run.sh", "x.gguf",
     "adapter_config.json", "config", "weights.safetensors.zip"],
)  # fmt: skip
def test_a_file_that_is_no_data_is_refused_by_name(path: str) -> None:
    assert path in refused(*WHOLE, path)


@pytest.mark.parametrize("missing", WHOLE)
def test_an_incomplete_model_is_refused(missing: str) -> None:
    rest = [path for path in WHOLE if path != missing]
    assert refused(*rest)


def test_sizes_and_digests_are_checked() -> None:
    for size in (-1, 5 * 2**30 + 1):
        with pytest.raises(InvalidArgument):
            manifest("a.json", size=size)
    with pytest.raises(InvalidArgument):
        Manifest.of([ManifestFile("a.json", 1, b"short")])
    with pytest.raises(InvalidArgument, match="files"):
        Manifest.of([])


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 100)), unique_by=lambda x: x[0])
)
def test_the_digest_depends_on_the_content_alone(files: list[tuple[str, int]]) -> None:
    if not files:
        return
    one = Manifest.of(ManifestFile(path, size, DIGEST) for path, size in files)
    two = Manifest.of(ManifestFile(path, size, DIGEST) for path, size in reversed(files))
    assert one.digest == two.digest
    assert Manifest.from_json(one.to_json()) == one
    bigger = Manifest.of(ManifestFile(path, size + 1, DIGEST) for path, size in files)
    assert bigger.digest != one.digest


@pytest.mark.parametrize(
    ("path", "document", "reason"),
    [
        ("config.json", {"model_type": "llama", "auto_map": {"AutoModel": "x.Y"}}, "remote_code"),
        ("config.json", {"model_type": "a", "text_config": [{"auto_map": "x"}]}, "remote_code"),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["x", None]}}, "remote_code"),
        ("config.json", {"hidden_size": 3}, "invalid_config"),
        ("config.json", [], "invalid_config"),
        ("m.safetensors.index.json", {"weight_map": {"w": "../mv-b/x.safetensors"}},
         "incomplete_model"),
        ("m.safetensors.index.json", {"weight_map": {"w": "/etc/passwd"}}, "incomplete_model"),
        ("m.safetensors.index.json", {}, "invalid_config"),
    ],
)  # fmt: skip
def test_documents_that_name_code_or_foreign_files_are_refused(
    path: str, document: object, reason: str
) -> None:
    with pytest.raises(AppError) as caught:
        check_document(manifest(*WHOLE), path, json.dumps(document).encode())
    assert caught.value.reason == reason


def test_documents_that_are_sound_pass() -> None:
    whole = manifest(*WHOLE)
    check_document(whole, "config.json", b'{"model_type": "llama", "auto_map": null}')
    check_document(whole, "x.index.json", b'{"weight_map": {"w": "model.safetensors"}}')
    with pytest.raises(InvalidArgument):
        check_document(whole, "config.json", b"[" * 100_000)


@pytest.mark.parametrize("name", ["llama-3.2-1b", "acme/Tiny_7.b", "a" * 128])
def test_names_of_imports(name: str) -> None:
    assert import_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "ft:x", "a:b", "a/b/c", "../a", "a..b", "-a", "a b", "a" * 129, "a\n", "/a", "é"]
)
def test_names_that_no_import_has(name: str) -> None:
    with pytest.raises(InvalidArgument):
        import_name(name)


@pytest.mark.parametrize("prefix", ["", "/", "..", "a/../b", "/abs", "a//b", "a/\n"])
def test_prefixes_that_nothing_may_be_removed_under(prefix: str) -> None:
    with pytest.raises(InvalidArgument):
        artifact_prefix(prefix)


@pytest.mark.parametrize("name", ["vocab.txt", "vocab.json", "x.tiktoken", "tokenizer.model"])
def test_what_a_tokenizer_reads_whole_is_bounded(name: str) -> None:
    given = [*manifest(*WHOLE).files, ManifestFile(name, 2**30, DIGEST)]
    with pytest.raises(InvalidArgument, match="too large to be read"):
        check_import(Manifest.of(given))


CONFIG = {
    "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8,
    "max_position_embeddings": 32,
}  # fmt: skip
INDEX = "model.safetensors.index.json"
PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.mark.parametrize(
    ("paths", "counted"),
    [
        (("model.safetensors", "consolidated.safetensors"), 1),
        ((INDEX, *PARTS, "consolidated.safetensors"), 2),
        ((INDEX, *PARTS, "consolidated-00001-of-00001.safetensors", "original/a.safetensors"), 2),
        (("consolidated.safetensors",), 1),
        (("a.safetensors", "b.safetensors"), 2),
        ((INDEX, "a.safetensors", "b.safetensors"), 2),
        (("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"), 2),
    ],
)
def test_weights_that_lie_there_twice_count_once(paths: tuple[str, ...], counted: int) -> None:
    found = footprint_of(CONFIG, manifest("config.json", *paths, size=100))
    assert found is not None
    assert found.weight_bytes == counted * 100
