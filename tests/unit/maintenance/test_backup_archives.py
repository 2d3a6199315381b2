"""Backups from strangers: what is in the file, and where it would go."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from windlass.core.config import Settings
from windlass.maintenance.archive import BackupError, verified, writing
from windlass.maintenance.backup import FILES, stored_files
from windlass.maintenance.restore import place

CONTENT = b"PGDMP"
PART = {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}


def manifest(**fields: Any) -> bytes:
    document: dict[str, Any] = {
        "release": "1", "created_at": "now", "schema": "", "postgres": "18", "master_key": "",
        "left_out": [], "members": {"database.dump": PART}, "format": 1,
    }  # fmt: skip
    return json.dumps(document | fields).encode()


def archive(path: Path, told: bytes, *others: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for entry in others:
            tar.addfile(entry, io.BytesIO(b"\0" * 512))
        for name, content in (("database.dump", CONTENT), ("manifest.json", told)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_a_sound_one_is_read(tmp_path: Path) -> None:
    found = verified(archive(tmp_path / "b", manifest(left_out=["files"])))
    assert found.left_out == ("files",)
    assert found.members["database.dump"].bytes == len(CONTENT)


@pytest.mark.parametrize(
    "told",
    [
        b"[]",
        b"[" * 100_000,
        manifest(members=[]),
        manifest(members={"database.dump": [5]}),
        manifest(schema=["x"]),
        manifest(left_out="files"),
        manifest(created_at=None),
        manifest(format=2),
    ],
    ids=["list", "nested", "members", "part", "schema", "left-out", "no-time", "format"],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, told: bytes) -> None:
    with pytest.raises(BackupError):
        verified(archive(tmp_path / "b", told))


def linked(name: str, to: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, to
    return entry


def with_hole() -> tarfile.TarInfo:
    entry = tarfile.TarInfo("keys/hole")
    entry.size = 512
    entry.pax_headers = {"GNU.sparse.map": "0,512", "GNU.sparse.size": str(2**60)}
    return entry


@pytest.mark.parametrize(
    "entry",
    [
        linked("keys/a", "keys/a", tarfile.SYMTYPE),
        linked("keys/a", "/etc/shadow", tarfile.SYMTYPE),
        linked("keys/a", "database.dump", tarfile.LNKTYPE),
        linked("keys/a", "", tarfile.DIRTYPE),
        with_hole(),
    ],
    ids=["itself", "elsewhere", "hard", "folder", "hole"],
)
def test_links_and_holes_are_refused(tmp_path: Path, entry: tarfile.TarInfo) -> None:
    with pytest.raises(BackupError, match="not a backup of Windlass"):
        verified(archive(tmp_path / "b", manifest(), entry))


@pytest.mark.parametrize(
    "name",
    ["keys/../x", "keys/.x", "keys/a/b", "/etc/passwd", "files/../../x", "files//x", "x", "keys/"],
)
def test_a_member_goes_nowhere_else(name: str) -> None:
    with pytest.raises(BackupError):
        place(name)


def test_files_that_are_deleted_meanwhile_are_left_out(tmp_path: Path) -> None:
    content = tmp_path / "objects/content/files/proj_1"
    content.mkdir(parents=True)
    for name in ("a", "b", "c"):
        (content / name).write_bytes(b"rows")
    with writing(tmp_path / "b") as writer:
        for name, path in stored_files(Settings(data_dir=tmp_path)):
            if name.endswith("/a"):
                (content / "b").unlink()
            writer.add_if_there(name, path)
        assert sorted(writer.members) == [f"{FILES}files/proj_1/{name}" for name in ("a", "c")]
