"""Files of a checkpoint, in a folder that its engine may write: only its own are uploaded."""

import os
from pathlib import Path

import pytest

from windlass.api.models.v1.models_pb2 import FileUrl
from windlass_agent.executors.process.trainings.uploading import UploadFailed, put_files


def promised(size: int = 4) -> list[FileUrl]:
    return [FileUrl(path="model.safetensors", url="http://127.0.0.1:9/x", bytes=size)]


@pytest.mark.parametrize("run", ["..", "run-", "run-1/../..", "/etc", "checkpoints"])
async def test_only_a_runs_own_folder_is_read(tmp_path: Path, run: str) -> None:
    with pytest.raises(UploadFailed, match="no folder of its own"):
        await put_files(tmp_path, run, promised)


async def test_links_pipes_and_other_sizes_are_refused(tmp_path: Path) -> None:
    folder, secret = tmp_path / "run-1/checkpoint", tmp_path / "secret"
    folder.mkdir(parents=True)
    secret.write_bytes(b"keys")
    file = folder / "model.safetensors"
    file.symlink_to(secret)
    with pytest.raises(UploadFailed, match="wrote no"):
        await put_files(tmp_path, "run-1", promised)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(UploadFailed, match="size"):
        await put_files(tmp_path, "run-1", promised)
    file.unlink()
    file.write_bytes(b"longer")
    with pytest.raises(UploadFailed, match="size"):
        await put_files(tmp_path, "run-1", promised)
    (tmp_path / "run-2").symlink_to(tmp_path / "run-1")
    (tmp_path / "run-3").mkdir()
    (tmp_path / "run-3/checkpoint").symlink_to(folder)
    for run in ("run-2", "run-3", "run-4"):
        with pytest.raises(UploadFailed, match="no checkpoint"):
            await put_files(tmp_path, run, promised)
