"""What others may put on a shared volume: nothing that is waited for or followed is read."""

import os
from pathlib import Path

import pytest
from tests.contract.weights.conftest import brought, made

from windlass.weight_versions import (
    BASE,
    FolderMedium,
    HeldVersion,
    VersionPublisher,
    WeightsRefused,
    digest_of,
)


@pytest.mark.parametrize(
    ("name", "reason"), [("manifest.json", "unknown_version"), ("weights.bin", "damaged_content")]
)
@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "nothing"])
async def test_only_files_are_read(tmp_path: Path, name: str, reason: str, kind: str) -> None:
    root, weights = tmp_path / "volume", made()
    root.mkdir()
    medium = FolderMedium(root, tmp_path)
    publisher = VersionPublisher(medium, tmp_path)
    await publisher.put(1, weights)
    publisher.close()
    path = root / f"{1:016}" / name
    path.rename(tmp_path / "kept")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "kept")
    elif kind == "folder":
        path.mkdir()
    digest = digest_of(weights)
    held = HeldVersion(BASE, "0" * 64, digest)
    with pytest.raises(WeightsRefused) as refusal:
        await brought(medium, 1, held, weights, tmp_path)
    assert refusal.value.reason == reason
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("weights-")] == []
