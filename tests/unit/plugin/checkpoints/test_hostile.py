"""Folders that are not what they seem: each has its refusal, and nothing is written."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import save_file
from tests.support.checkpoints.crashing import contents
from tests.support.checkpoints.models import INDEX, SHARDS, weights, write_model

from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.diagnosis import diagnose_folder, sync_folder
from windlass_vllm.checkpoints.folder import create_checkpoint
from windlass_vllm.checkpoints.shards import read_shard
from windlass_vllm.refusal import Refused


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", weights())


@pytest.fixture
def run(model: Path, tmp_path: Path) -> Path:
    folder = create_checkpoint(model, tmp_path / "run", "v0")
    live = weights()
    live["up.weight"][1] += 1
    with BlockCheckpoint(folder) as checkpoint:
        checkpoint.write(live, "v1")
    return folder


def refusals(folder: Path) -> set[str]:
    """The reasons for which a folder is not opened, by both ways; nothing of it may change."""
    found, before = set(), contents(folder)
    for use in (diagnose_folder, sync_folder):
        with pytest.raises(Refused) as refused:
            use(folder)
        found.add(refused.value.reason)
    assert contents(folder) == before
    return found


def header(described: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = described if isinstance(described, bytes) else json.dumps(described).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(begin: int, end: int, shape: Any = None, dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape or [end - begin], "data_offsets": [begin, end]}


LIES = {
    "empty": b"",
    "cut in its length": b"\1\0\0",
    "longer than the file": header({"a": tensor(0, 4)}, bytes(4), length=1 << 40),
    "as long as a number can be": header({}, length=2**64 - 1),
    "no JSON": header(b"{'a'"),
    "no object": header([]),
    "nested without end": header(b'{"a":' + b"[" * 100_000),
    "no text": header(b'{"\xff": 1}'),
    "a gap": header({"a": tensor(4, 8)}, bytes(8)),
    "an overlap": header({"a": tensor(0, 4), "b": tensor(2, 6)}, bytes(6)),
    "beyond the file": header({"a": tensor(0, 9)}, bytes(8)),
    "short of the file": header({"a": tensor(0, 4)}, bytes(8)),
    "backwards": header({"a": tensor(4, 0, [4])}, bytes(4)),
    "negative": header({"a": tensor(0, 4, [-4])}, bytes(4)),
    "a product that overflows": header({"a": tensor(0, 4, [2**40, 2**40])}, bytes(4)),
    "of more than it has": header({"a": tensor(0, 4, [2, 4])}, bytes(4)),
    "of many dimensions": header({"a": tensor(0, 1, [1] * 99)}, bytes(1)),
    "of a fraction": header({"a": tensor(0, 4, [4.5])}, bytes(4)),
    "of an unknown type": header({"a": tensor(0, 4, dtype="Q9")}, bytes(4)),
    "with another word": header({"a": tensor(0, 4) | {"path": "/etc/passwd"}}, bytes(4)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_header_is_refused(lie: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "model.safetensors"
    path.write_bytes(LIES[lie])
    with pytest.raises(Refused) as refused:
        read_shard(path)
    assert refused.value.reason == "invalid_header"
    with pytest.raises(Refused):
        create_checkpoint(tmp_path / "model", tmp_path / "run", "v0")
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_was_changed_later_is_refused(lie: str, run: Path) -> None:
    (run / SHARDS[1]).write_bytes(LIES[lie])
    assert refusals(run) == {"invalid_header"}


def test_a_header_of_other_tensors_is_refused(run: Path) -> None:
    path = run / SHARDS[0]
    path.write_bytes(path.read_bytes().replace(b"embed.weight", b"embed.weighs"))
    assert refusals(run) == {"invalid_header"}


def test_the_kept_headers_are_those_of_safetensors(run: Path) -> None:
    names = {one.name for shard in SHARDS for one in read_shard(run / shard).tensors}
    assert names == {name for name, one in weights().items() if one.numel()}


def link(run: Path, name: str) -> None:
    (run / name).rename(run.parent / "elsewhere")
    (run / name).symlink_to(run.parent / "elsewhere")


@pytest.mark.parametrize("name", [SHARDS[0], "config.json", ".windlass/log"])
def test_a_link_in_place_of_a_file_is_refused(name: str, run: Path) -> None:
    link(run, name)
    assert refusals(run) <= {"link_in_folder", "log_damaged"}


def test_a_file_that_has_another_name_elsewhere_is_refused(run: Path) -> None:
    """A hard link to a file of a cache would be written through."""
    os.link(run / SHARDS[0], run.parent / "cached")
    assert refusals(run) == {"link_in_folder"}


@pytest.mark.parametrize(
    "name", ["extra.safetensors", "notes.txt", ".windlass/extra", ".hidden", ".windlass/log.old"]
)
def test_a_foreign_file_is_refused(name: str, run: Path) -> None:
    (run / name).write_bytes(b"x")
    assert refusals(run) == {"foreign_file"}


def test_a_foreign_folder_or_pipe_is_refused(run: Path) -> None:
    (run / "original").mkdir()
    assert refusals(run) == {"foreign_file"}
    (run / "original").rmdir()
    os.mkfifo(run / "pipe")
    with pytest.raises(Refused) as refused:
        diagnose_folder(run)
    assert refused.value.reason == "foreign_file"


def test_a_missing_file_is_refused(run: Path) -> None:
    (run / SHARDS[0]).unlink()
    assert refusals(run) == {"block_damaged"}


def outcome(run: Path) -> str:
    """The version that is found whole, or the reason why none is."""
    try:
        found = diagnose_folder(run)
    except Refused as refused:
        return refused.reason
    return found.version if found.whole else "damaged"


def test_a_log_that_is_cut_anywhere_is_the_version_before_or_refused(run: Path) -> None:
    path = run / ".windlass" / "log"
    whole = path.read_bytes()
    found = set()
    for size in (*range(0, 200), *range(200, len(whole), 11)):
        path.write_bytes(whole[:size])
        found.add(outcome(run))
    assert found == {"log_damaged", "v0"}
    path.write_bytes(whole)
    assert outcome(run) == "v1"


def test_a_log_with_any_byte_changed_is_never_believed(run: Path) -> None:
    path = run / ".windlass" / "log"
    whole = path.read_bytes()
    found = set()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        found.add(outcome(run))
    assert found == {"log_damaged", "v0"}


def test_a_folder_without_a_log_is_no_checkpoint(model: Path) -> None:
    assert refusals(model) == {"no_checkpoint"}
    for use in (diagnose_folder, sync_folder):
        with pytest.raises(Refused) as refused:
            use(model / "config.json")
        assert refused.value.reason == "no_checkpoint"


def test_damaged_blocks_are_named(run: Path) -> None:
    shard = read_shard(run / SHARDS[0])
    embed = next(one for one in shard.tensors if one.name == "embed.weight")
    path = run / SHARDS[0]
    content = bytearray(path.read_bytes())
    for block in (1, 3):
        content[embed.offset + 4096 * block + 9] ^= 4
    path.write_bytes(bytes(content))
    (run / "config.json").write_text('{"model_type":"other"}')
    before = contents(run)
    found = diagnose_folder(run)
    assert contents(run) == before
    assert found.damaged == {"embed.weight": [1, 3], "config.json": []}
    assert not found.whole


def refused_target(source: Path, target: Path, protected: tuple[Path, ...] = ()) -> str:
    with pytest.raises(Refused) as refused:
        create_checkpoint(source, target, "v0", protected=protected)
    return refused.value.reason


def test_a_checkpoint_is_never_made_where_an_engine_or_a_cache_reads(
    model: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    hub = tmp_path / "hub" / "models--x--y" / "snapshots" / "1"
    for folder in (cache, hub, model / "inner"):
        folder.mkdir(parents=True)
    (tmp_path / "to-model").symlink_to(model)
    (tmp_path / "to-cache").symlink_to(cache)
    for target in (model / "run", model / "inner" / "run", tmp_path / "to-model" / "run"):
        assert refused_target(model, target) == "folder_protected"
    assert refused_target(tmp_path / "to-model", model / "run") == "folder_protected"
    assert refused_target(model, tmp_path / "to-cache" / "run", (cache,)) == "folder_protected"
    assert refused_target(model, cache / "run", (tmp_path / "to-cache",)) == "folder_protected"
    assert refused_target(model, hub / "run") == "folder_protected"
    for target in (model, cache, tmp_path / "to-cache"):
        assert refused_target(model, target) in ("folder_protected", "folder_exists")


def test_a_checkpoint_is_not_opened_in_a_cache(run: Path, tmp_path: Path) -> None:
    (tmp_path / "to-run").symlink_to(run)
    for protected in (run, tmp_path, tmp_path / "to-run"):
        with pytest.raises(Refused) as refused:
            BlockCheckpoint(run, protected=(protected,))
        assert refused.value.reason == "folder_protected"
    BlockCheckpoint(tmp_path / "to-run").close()


def test_a_model_of_links_is_copied(model: Path, tmp_path: Path) -> None:
    """As snapshots of the Hugging Face cache are."""
    snapshot = tmp_path / "models--x--y"
    snapshot.mkdir()
    for path in model.iterdir():
        (snapshot / path.name).symlink_to(path)
    folder = create_checkpoint(snapshot, tmp_path / "run", "v0")
    assert diagnose_folder(folder).whole
    assert not any(path.is_symlink() for path in folder.rglob("*"))


def index(model: Path, value: Any) -> None:
    (model / INDEX).write_bytes(msgspec.json.encode(value))


def remove(model: Path, *names: str) -> None:
    for name in names:
        (model / name).unlink()


BAD_MODELS: dict[str, Callable[[Path], object]] = {
    "an index of paths": lambda model: index(model, {"weight_map": {"a": "../x.safetensors"}}),
    "an index of what is not there": lambda model: index(
        model, {"weight_map": {"a": "none.safetensors"}}
    ),
    "an index of other files": lambda model: index(model, {"weight_map": {"a": "config.json"}}),
    "an empty index": lambda model: index(model, {"weight_map": {}}),
    "an index that is none": lambda model: index(model, []),
    "a tensor twice": lambda model: save_file({"bias": torch.zeros(1)}, model / SHARDS[1]),
    "no weights": lambda model: remove(model, *SHARDS, INDEX),
}


@pytest.mark.parametrize("bad", BAD_MODELS)
def test_a_folder_that_is_no_model_is_refused(bad: str, model: Path, tmp_path: Path) -> None:
    BAD_MODELS[bad](model)
    assert refused_target(model, tmp_path / "run") == "unreadable_model"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_target_that_is_there_is_left_alone(model: Path, run: Path) -> None:
    before = contents(run)
    assert refused_target(model, run) == "folder_exists"
    assert refused_target(model, run.parent / "none" / "run") == "not_written"
    assert contents(run) == before
