"""What lies in an engine's folder is believed only where the engine itself wrote it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from windlass_vllm.refusal import Refused
from windlass_vllm.weights.handles import (
    HANDLES,
    WEIGHTS,
    Handle,
    WeightHandles,
    read_handles,
    write_handles,
)
from windlass_vllm.weights.private_folder import OwnFolder, PrivateFolder
from windlass_vllm.weights.shared_files import open_shared, place, share

KEY = b"k" * 32
SHAPES = {"wide.weight": (3, 5), "flat": (7,), "last.weight": (4, 4)}


def parameters() -> dict[str, torch.nn.Parameter]:
    """Weights whose every number says which it is."""
    return {
        name: torch.nn.Parameter(torch.randn(shape), requires_grad=False)
        for name, shape in SHAPES.items()
    }


def handles(generation: int = 1) -> WeightHandles:
    """Handles of such weights."""
    offsets, size = place({name: 4 * torch.Size(shape).numel() for name, shape in SHAPES.items()})
    found = tuple(
        Handle(name, "float32", shape, torch.empty(shape).stride(), offsets[name], shape[0])
        for name, shape in SHAPES.items()
    )
    return WeightHandles(
        generation=generation,
        device="cpu",
        size=size,
        context=8,
        config="{}",
        packed={},
        prefixes={},
        handles=found,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[OwnFolder]:
    own = OwnFolder(tmp_path)
    yield own
    own.close()
    assert list(tmp_path.glob("windlass-vllm-*")) == []


def shared(folder: PrivateFolder) -> dict[str, torch.nn.Parameter]:
    weights = parameters()
    offsets, size = place({name: 4 * one.numel() for name, one in weights.items()})
    share(folder, weights, offsets, size)
    write_handles(folder, handles(), KEY)
    return weights


def refused(folder: PrivateFolder, generation: int = 1) -> str:
    with pytest.raises(Refused) as error:
        open_shared(folder, read_handles(folder, generation, KEY))
    return error.value.reason


def test_both_sides_see_each_others_changes(folder: OwnFolder) -> None:
    weights = shared(folder)
    seen = open_shared(folder, read_handles(folder, 1, KEY))
    assert all(torch.equal(seen[name], one) for name, one in weights.items())
    seen["flat"][2] = 9
    weights["last.weight"][1, 1] = 8
    assert weights["flat"][2] == 9
    assert seen["last.weight"][1, 1] == 8


def test_an_older_generation_is_refused(folder: OwnFolder) -> None:
    shared(folder)
    assert refused(folder, generation=2) == "stale_handles"


def test_forged_and_cut_handles_are_refused(folder: OwnFolder) -> None:
    shared(folder)
    path = folder.path / HANDLES
    written = path.read_bytes()
    for cut in range(len(written)):
        path.write_bytes(written[:cut])
        assert refused(folder) == "foreign_handles"
    write_handles(folder, handles(), b"other" * 4)
    assert refused(folder) == "foreign_handles"


LIES: dict[str, Callable[[Handle], Handle]] = {
    "beyond the file": lambda one: msgspec.structs.replace(one, offset=2**40),
    "before it": lambda one: msgspec.structs.replace(one, offset=-4096),
    "into another": lambda one: msgspec.structs.replace(one, offset=0),
    "strides": lambda one: msgspec.structs.replace(one, strides=(1, 4)),
    "rows": lambda one: msgspec.structs.replace(one, rows=5),
    "type": lambda one: msgspec.structs.replace(one, dtype="int8"),
    "shape": lambda one: msgspec.structs.replace(one, shape=(0, 4)),
    "name": lambda one: msgspec.structs.replace(one, name="flat"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_handle_that_lies_is_refused(folder: OwnFolder, lie: str) -> None:
    shared(folder)
    true = handles()
    lying = (*true.handles[:-1], LIES[lie](true.handles[-1]))
    write_handles(folder, msgspec.structs.replace(true, handles=lying), KEY)
    assert refused(folder) == "foreign_handles"


@pytest.mark.parametrize("name", [HANDLES, WEIGHTS])
@pytest.mark.parametrize("kind", ["symlink", "hard link", "open to others", "fifo", "gone"])
def test_what_is_no_file_of_its_own_is_refused(
    folder: OwnFolder, tmp_path: Path, name: str, kind: str
) -> None:
    shared(folder)
    path, other = folder.path / name, tmp_path / "other"
    if kind == "open to others":
        path.chmod(0o640)
    elif kind == "hard link":
        os.link(path, other)
    else:
        path.rename(other)
        if kind == "symlink":
            path.symlink_to(other)
        elif kind == "fifo":
            os.mkfifo(path, 0o600)
    assert refused(folder) == "foreign_handles"


def test_a_folder_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    PrivateFolder(tmp_path / "own").close()
    for name in ("open", "link", "none"):
        with pytest.raises(Refused, match=name):
            PrivateFolder(tmp_path / name)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Refused, match="belongs to user"):
        PrivateFolder(tmp_path / "own")


def test_weights_that_find_no_room_stay_where_they_are(
    folder: OwnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    weights = parameters()
    before = {name: one.data_ptr() for name, one in weights.items()}
    with pytest.raises(Refused) as error:
        share(folder, weights, dict.fromkeys(weights, 0), 2**50)
    assert error.value.reason == "no_room"
    assert {name: one.data_ptr() for name, one in weights.items()} == before


def test_folders_of_the_dead_are_removed_and_of_the_living_kept(tmp_path: Path) -> None:
    living = OwnFolder(tmp_path)
    dead = tmp_path / "windlass-vllm-0123456789abcdef"
    dead.mkdir(mode=0o700)
    (dead / "lock").touch(mode=0o600)
    newer = OwnFolder(tmp_path)
    assert living.path.exists()
    assert not dead.exists()
    living.close()
    newer.close()
