"""Restores a backup into an empty installation, or in place of one."""

import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import KeyringError, check_master_key
from windlass.core.objects.port import InvalidKey, validate_key
from windlass.embedded_postgres import restore as restore_database
from windlass.maintenance.archive import BackupError, BackupManifest, extract, verified
from windlass.maintenance.backup import DATABASE, FILES, KEYS, OWNER_KEY
from windlass.maintenance.database import make_data_folder, open_database
from windlass.maintenance.progress import SILENT, ProgressReporter
from windlass.migrations import revisions

_KEY_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_CONTENT = Path("objects/content")


async def restore(
    settings: Settings, path: Path, *, replace: bool = False, progress: ProgressReporter = SILENT
) -> tuple[BackupManifest, str]:
    """Restores a backup, and returns its manifest and what is still missing, if anything.

    The target must be empty unless it is to be replaced; keys that are replaced are kept beside
    the new ones. Raises BackupError, PostgresError, DatabaseUnavailable or OSError, and then the
    target is as it was.
    """
    progress.say(f"checking {path.name}", path.stat().st_size)
    manifest = verified(path, progress)
    names = {name: place(name) for name in manifest.members}
    if manifest.schema and manifest.schema not in revisions():
        raise BackupError(
            f"{path} was made by release {manifest.release}, whose schema {manifest.schema} this "
            "release does not know: restore it with that release or a newer one."
        )
    make_data_folder(settings.data_dir)
    staging = settings.data_dir / f".restore-{secrets.token_hex(4)}"
    staging.mkdir(mode=0o700)
    try:
        progress.say("opening the database")
        async with open_database(settings, attach=False, make=True) as url:
            progress.say(f"unpacking {path.name}", path.stat().st_size)
            extract(path, staging, names, progress)
            progress.say("restoring the database")
            with _placed(staging, settings.data_dir, replace=replace):
                await restore_database(url, staging / DATABASE, replace=replace)
            return manifest, await _missing(settings, url) if manifest.master_key else ""
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def place(name: str) -> Path:
    """Returns where a member goes, below the data folder; raises BackupError for a strange one."""
    if name in (DATABASE, OWNER_KEY):
        return Path(name)
    if name.startswith(KEYS) and _KEY_NAME.fullmatch(name.removeprefix(KEYS)):
        return Path(name)
    if name.startswith(FILES):
        try:
            return _CONTENT / validate_key(name.removeprefix(FILES))
        except InvalidKey as error:
            raise BackupError(str(error)) from error
    raise BackupError(f"{name!r} belongs to no backup of this release.")


@contextmanager
def _placed(staging: Path, data: Path, *, replace: bool) -> Iterator[None]:
    """Moves keys and files into place, and back again if the block fails."""
    sources = _keys(staging)
    if (staging / _CONTENT).is_dir():
        sources.append(staging / _CONTENT)
    pairs = [(source, data / source.relative_to(staging)) for source in sources]
    moves = [pair for pair in pairs if not _same(*pair)]
    taken = [target for _, target in moves if _holds(target)]
    if taken and not replace:
        raise BackupError(
            f"{', '.join(map(str, taken))} exists already, and differs from the backup's. Restore "
            "into another data folder, or replace what is there with --replace."
        )
    undo: list[Callable[[], object]] = []
    try:
        for source, target in moves:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if target.exists():
                former = target.with_name(f"{target.name}.replaced-{staging.name[-8:]}")
                target.rename(former)
                undo.append(partial(former.rename, target))
            source.rename(target)
            undo.append(partial(target.rename, source))
        yield
    except BaseException:
        for back in reversed(undo):
            back()
        raise
    for former in data.glob(f"{_CONTENT}.replaced-{staging.name[-8:]}"):
        shutil.rmtree(former)


def _keys(staging: Path) -> list[Path]:
    return [path for path in (*(staging / KEYS).glob("*"), staging / OWNER_KEY) if path.is_file()]


def _same(source: Path, target: Path) -> bool:
    return target.is_file() and target.read_bytes() == source.read_bytes()


def _holds(target: Path) -> bool:
    """True if something would be lost: a key, or a file of a folder."""
    return target.is_file() or any(path.is_file() for path in target.rglob("*"))


async def _missing(settings: Settings, url: str) -> str:
    """Returns why the restored secrets cannot be opened; empty where they can."""
    database = Database(url, pool_size=2)
    try:
        await check_master_key(settings, database)
    except KeyringError as error:
        return str(error)
    finally:
        await database.close()
    return ""
