"""Makes a cluster, and writes the configuration that it is served with."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from windlass.core.account import own_name
from windlass.embedded_postgres.binaries import MAJOR
from windlass.embedded_postgres.errors import PostgresError, VersionMismatch
from windlass.embedded_postgres.place import PORT, Place

ADMIN = "postgres"
ROLE = "windlass"
DATABASE = "windlass"

_SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "effective_cache_size": "1GB",
    "work_mem": "8MB",
    "maintenance_work_mem": "64MB",
    "random_page_cost": "1.1",
    "jit": "off",
    # Short queries only; and /dev/shm is small in containers.
    "max_parallel_workers_per_gather": "0",
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "1GB",
    "idle_in_transaction_session_timeout": "10min",
    "logging_collector": "on",
    "log_filename": "postgresql-%a.log",
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
    "log_line_prefix": "%m [%p] ",
    # The detail of an error holds tenants' values.
    "log_error_verbosity": "terse",
}


def ensure_cluster(place: Place) -> None:
    """Makes the cluster unless it is there; raises VersionMismatch for another major version."""
    version = place.cluster / "PG_VERSION"
    if not version.exists():
        _initialize(place)
    found = version.read_text().strip()
    if found != str(MAJOR):
        raise VersionMismatch(
            f"{place.cluster} was made by PostgreSQL {found}, and this installation has {MAJOR}: "
            "dump it with the release that made it, and restore the dump into a new data folder."
        )


def _initialize(place: Place) -> None:
    # Made aside and renamed, so that a half-made cluster is never taken for one.
    fresh = place.home / "cluster.new"
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(mode=0o700)
    place.account.own(fresh)
    done = place.account.run(
        place.program("initdb"),
        f"--pgdata={fresh}",
        f"--username={ADMIN}",
        "--auth=peer",
        "--encoding=UTF8",
        # Its order depends on no library of the system, so an upgrade corrupts no index.
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
        "--no-instructions",
    )
    if done.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        raise PostgresError(f"PostgreSQL cannot make its cluster: {done.stderr.strip()}")
    fresh.rename(place.cluster)


def write_settings(place: Place, extra: Mapping[str, str]) -> None:
    """Writes the three configuration files anew, outside of what the server may write."""
    values = {
        **_SETTINGS,
        "unix_socket_directories": str(place.sockets),
        "log_directory": str(place.home / "log"),
        "hba_file": str(place.settings / "pg_hba.conf"),
        "ident_file": str(place.settings / "pg_ident.conf"),
        **extra,
    }
    lines = [f"{name} = '{_quoted(value)}'" for name, value in values.items()]
    lines.append("include_if_exists = 'local.conf'")
    _write(place, "postgresql.conf", lines)
    _write(place, "pg_hba.conf", [f"local all {ADMIN},{ROLE} peer map=windlass"])
    users = {place.account.name, own_name()}
    names = [f'windlass "{user}" {role}' for user in sorted(users) for role in (ADMIN, ROLE)]
    _write(place, "pg_ident.conf", names)


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")


def _write(place: Place, name: str, lines: list[str]) -> None:
    temporary = place.settings / f".{name}"
    temporary.write_text("\n".join([*lines, ""]))
    if place.account.foreign:
        os.chown(temporary, os.geteuid(), place.account.gid)
    temporary.chmod(0o640 if place.account.foreign else 0o600)
    temporary.rename(place.settings / name)


def log_tail(path: Path, *, lines: int = 5) -> str:
    """The last lines of a log, on one line."""
    try:
        return " / ".join(path.read_text(errors="replace").strip().splitlines()[-lines:])
    except OSError:
        return ""
