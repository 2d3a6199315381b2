"""Files of a checkpoint, in a folder that its engine may write: only its own are uploaded."""

import os
from pathlib import Path

import pytest

from windlass.api.models.v1.models_pb2 import FileUrl
from windlass_agent.executors.process.trainings.checkpoint_folder import (
    CheckpointFolder,
    UploadFailed,
)

FILE = FileUrl(path="model.safetensors", url="http://127.0.0.1:9/x", bytes=4)


@pytest.mark.parametrize("run", ["..", "run-", "run-1/../..", "/etc", "checkpoints"])
def test_only_a_runs_own_folder_is_read(tmp_path: Path, run: str) -> None:
    with pytest.raises(UploadFailed, match="no folder of its own"):
        CheckpointFolder(tmp_path, run)


def test_links_pipes_and_other_sizes_are_refused(tmp_path: Path) -> None:
    folder, secret = tmp_path / "run-1/checkpoint", tmp_path / "secret"
    folder.mkdir(parents=True)
    secret.write_bytes(b"keys")
    file, found = folder / "model.safetensors", CheckpointFolder(tmp_path, "run-1")
    file.symlink_to(secret)
    with pytest.raises(UploadFailed, match="wrote no"):
        found.open(FILE)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UploadFailed, match="size"):
        found.open(FILE)
    file.unlink()
    file.write_bytes(b"longer")
    with pytest.raises(UploadFailed, match="size"):
        found.digest(FILE)
    (tmp_path / "run-2").symlink_to(tmp_path / "run-1")
    (tmp_path / "run-3").mkdir()
    (tmp_path / "run-3/checkpoint").symlink_to(folder)
    for run in ("run-2", "run-3", "run-4"):
        with pytest.raises(UploadFailed, match="no checkpoint"):
            CheckpointFolder(tmp_path, run).open(FILE)
