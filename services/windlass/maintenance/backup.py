"""Makes a backup: the database, the keys of the data folder, and its files when asked."""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import sealing_key
from windlass.embedded_postgres import dump
from windlass.maintenance.archive import BackupManifest, writing
from windlass.maintenance.database import database_status
from windlass.maintenance.progress import SILENT, ProgressReporter

DATABASE = "database.dump"
KEYS = "keys/"
FILES = "files/"
OWNER_KEY = "owner.key"


async def back_up(
    settings: Settings,
    url: str,
    path: Path,
    *,
    keys: bool = True,
    files: bool = False,
    progress: ProgressReporter = SILENT,
) -> BackupManifest:
    """Writes a backup to `path`, mode 0600, whole or not at all; a server may be running.

    The files are those of the folder store. Raises BackupError, PostgresError, OSError.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.dump")
    status = await database_status(url)
    database = Database(url, pool_size=2)
    try:
        sealed_by = await sealing_key(database) if not status.schema.problem() else ""
        with writing(path, progress) as writer:
            # The database first: files that come meanwhile are only too many.
            progress.say("dumping the database")
            await dump(url, temporary)
            stored = list(stored_files(settings)) if files else []
            progress.say(f"writing {path.name}", _size([temporary, *(file for _, file in stored)]))
            writer.add(DATABASE, temporary)
            temporary.unlink()
            for name, source in _keys(settings, keys):
                writer.add(name, source)
            for name, source in stored:
                writer.add_if_there(name, source)
            manifest = BackupManifest(
                release=version("windlass"),
                created_at=datetime.now(UTC).isoformat(timespec="seconds"),
                schema=status.schema.current or "",
                postgres=status.server_version,
                master_key=sealed_by,
                left_out=tuple(_left_out(settings, keys, files)),
                members=writer.members,
            )
            writer.close(manifest)
    finally:
        temporary.unlink(missing_ok=True)
        await database.close()
    return manifest


def _size(paths: Iterable[Path]) -> int:
    total = 0
    for path in paths:
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def _keys(settings: Settings, wanted: bool) -> Iterator[tuple[str, Path]]:
    if not wanted:
        return
    folder, owner = settings.data_dir / "keys", settings.data_dir / OWNER_KEY
    for path in sorted(folder.glob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield KEYS + path.name, path
    if owner.is_file():
        yield OWNER_KEY, owner


def stored_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    """Yields the files of the folder store by their names in a backup; tenants may delete any."""
    if settings.objects.kind != "filesystem":
        return
    content = settings.data_dir / "objects" / "content"
    for folder, _, names in os.walk(content, onerror=_unless_gone):
        for path in (Path(folder, name) for name in sorted(names)):
            yield FILES + path.relative_to(content).as_posix(), path


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _left_out(settings: Settings, keys: bool, files: bool) -> Iterator[str]:
    """Yields what a restore needs beside the backup."""
    master, objects = settings.master_key, settings.objects
    if master.vault.address:
        yield f"the master key, which is in Vault: {master.vault.mount}/{master.vault.key}"
    if master.pkcs11.module:
        yield f"the master key, which is in the PKCS#11 token {master.pkcs11.token}"
    if master.aws.key_arn:
        yield f"the master key, which is in AWS KMS: {master.aws.key_arn}"
    if master.key.get_secret_value():
        yield "the master key, which is in the configuration: master_key.key"
    elif master.file:
        yield f"the master key, which is in {master.file}"
    elif not keys and not master.is_remote:
        yield f"the keys of {settings.data_dir}, its master key among them"
    if objects.kind == "s3":
        yield f"files and models, which are in the bucket {objects.bucket}"
    elif not files:
        yield f"files and models, which are in {settings.data_dir / 'objects'}"
