"""The command `windlass-vllm`: what it prints, and with which code it ends."""

from pathlib import Path

import pytest
from tests.support.checkpoints.crashing import contents
from tests.support.checkpoints.models import SHARDS, read_model, same, weights, write_model

from windlass_vllm.__main__ import main
from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.folder import create_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = create_checkpoint(write_model(tmp_path / "model", weights()), tmp_path / "run", "v0")
    live = weights()
    live["bias"] += 1
    with BlockCheckpoint(folder) as checkpoint:
        checkpoint.write(live, "v1")
    with (folder / ".windlass" / "log").open("ab") as log:
        log.write(b"torn")
    return folder


def test_diagnose_says_what_is_there_and_writes_nothing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(run)
    assert main(["diagnose", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "version: v1 (generation 1)",
        "in the files: v0; in the log alone: 1 versions",
        "unfinished: 4 bytes of a write that did not end",
        "digests: right",
    ]
    assert contents(run) == before


def test_sync_finishes_what_was_begun(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sync", str(run)]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("written: ")
    assert rest == [
        "version: v1 (generation 1)",
        "in the files: v1; in the log alone: 0 versions",
        "digests: right",
    ]
    live = weights()
    live["bias"] += 1
    assert same(read_model(run), live)
    assert main(["sync", str(run)]) == 0
    assert capsys.readouterr().out.startswith("written: 0 bytes")


@pytest.mark.parametrize("command", ["sync", "diagnose"])
def test_damage_is_named_and_ends_with_1(
    command: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / SHARDS[1]
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")
    assert main([command, str(run)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["damaged: up.weight, 1 blocks: 5", "digests: wrong"]


@pytest.mark.parametrize("command", ["sync", "diagnose"])
def test_a_refusal_has_its_reason_and_ends_with_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("no_checkpoint: ")


def test_sync_refuses_a_protected_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sync", str(run), "--protect", str(run.parent)]) == 2
    assert capsys.readouterr().err.startswith("folder_protected: ")
