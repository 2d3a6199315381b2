"""The file of a backup: a tar of members, and at its end a manifest with their digests."""

import hashlib
import io
import json
import os
import secrets
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from windlass.maintenance.progress import SILENT, ProgressReporter

MANIFEST = "manifest.json"
FORMAT = 1
_PIECE = 2**20
_MANIFEST_BYTES = 2**30


class BackupError(Exception):
    """A backup cannot be made, read or restored; the message says why."""


@dataclass(frozen=True, slots=True)
class BackupPart:
    """Size and digest of one file of a backup."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """Contents of a backup, and what it was made of."""

    release: str
    created_at: str
    schema: str
    postgres: str
    # The id of the master key that opens the database's root key, and what lies elsewhere.
    master_key: str
    left_out: tuple[str, ...]
    members: Mapping[str, BackupPart] = field(default_factory=dict)
    format: int = FORMAT


class BackupWriter:
    """A backup that is being written."""

    def __init__(self, tar: tarfile.TarFile, progress: ProgressReporter):
        self._tar = tar
        self._progress = progress
        self.members: dict[str, BackupPart] = {}

    def add(self, name: str, path: Path) -> None:
        """Adds a file under a name."""
        with path.open("rb") as source:
            reader = _Digesting(source, self._progress)
            entry = _entry(name, os.fstat(source.fileno()).st_size)
            self._tar.addfile(entry, reader)
        self.members[name] = BackupPart(entry.size, reader.digest.hexdigest())

    def add_if_there(self, name: str, path: Path) -> None:
        """Adds a file that somebody may have deleted."""
        # Nothing is written before it is open.
        with suppress(FileNotFoundError):
            self.add(name, path)

    def close(self, manifest: BackupManifest) -> None:
        """Ends the backup with its manifest."""
        content = json.dumps(asdict(manifest), indent=1).encode()
        self._tar.addfile(_entry(MANIFEST, len(content)), io.BytesIO(content))


@contextmanager
def writing(path: Path, progress: ProgressReporter = SILENT) -> Iterator[BackupWriter]:
    """Writes a backup to `path` (mode 0600), whole or not at all; an existing file is refused."""
    if path.exists():
        raise BackupError(f"{path} exists already.")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                yield BackupWriter(tar, progress)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def verified(path: Path, progress: ProgressReporter = SILENT) -> BackupManifest:
    """Reads a whole backup and returns its manifest; raises BackupError for a damaged one."""
    found: dict[str, BackupPart] = {}
    manifest: BackupManifest | None = None
    try:
        with tarfile.open(path, mode="r:") as tar:
            for entry in tar:
                # Links and holes could make much of little, or never end.
                is_plain = entry.isreg() and not entry.issparse()
                source = tar.extractfile(entry) if is_plain else None
                if source is None or manifest is not None or entry.name in found:
                    raise BackupError(f"{path} is not a backup of Windlass: {entry.name!r} in it.")
                if entry.name == MANIFEST:
                    manifest = _parsed(source.read(_MANIFEST_BYTES))
                    continue
                digest = hashlib.sha256()
                while piece := source.read(_PIECE):
                    digest.update(piece)
                    progress.advance(len(piece))
                found[entry.name] = BackupPart(entry.size, digest.hexdigest())
    except (tarfile.TarError, EOFError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise BackupError(
            f"{path} is not a backup of Windlass, or is damaged: {error}. Use another copy."
        ) from error
    if manifest is None:
        raise BackupError(f"{path} is damaged: its end is missing. Use another copy.")
    for name in sorted({*found, *manifest.members}):
        if found.get(name) != manifest.members.get(name):
            raise BackupError(
                f"{path} is damaged: {name} is not what was backed up. Use another copy."
            )
    return manifest


def extract(
    path: Path, folder: Path, names: Mapping[str, Path], progress: ProgressReporter = SILENT
) -> None:
    """Writes members to paths in a folder, files of mode 0600 in folders of mode 0700."""
    with tarfile.open(path, mode="r:") as tar:
        for entry in tar:
            target, source = names.get(entry.name), tar.extractfile(entry)
            if target is None or source is None:
                continue
            (folder / target).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(folder / target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                while piece := source.read(_PIECE):
                    file.write(piece)
                    progress.advance(len(piece))
                file.flush()
                os.fsync(file.fileno())


class _Digesting:
    """A file that counts into a digest what is read of it."""

    def __init__(self, source: IO[bytes], progress: ProgressReporter):
        self._source = source
        self._progress = progress
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Reads as the file does."""
        piece = self._source.read(size)
        self.digest.update(piece)
        self._progress.advance(len(piece))
        return piece


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry


def _parsed(content: bytes) -> BackupManifest:
    document = msgspec.json.decode(content, type=dict[str, Any])
    if document.get("format") != FORMAT:
        raise BackupError(f"Backups of format {document.get('format')} are of another release.")
    return msgspec.convert(document, BackupManifest)
