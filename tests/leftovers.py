"""What a test run leaves on disk is removed: at its end, or by the next run where it was killed.

The account that runs PostgreSQL cannot enter pytest's folders, which are root's alone, so each
server that a test starts keeps its database in the system's folder: 70 MB that nothing comes
back to, a hundred times a run. pytest itself takes the folder of a run that was killed for one
that is in use, for three days; a few of them fill a disk, and then every test fails.
"""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.support.environments.postgres import PREFIX

from windlass.embedded_postgres.place import OWNER, SYSTEM_HOME


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Removes what killed runs have left."""
    if hasattr(session.config, "workerinput"):
        return
    factory: pytest.TempPathFactory | None = getattr(session.config, "_tmp_path_factory", None)
    if factory is not None:
        remove_dead_runs(factory.getbasetemp().parent)
    remove_dead_servers(Path(tempfile.gettempdir()))
    remove_orphans(SYSTEM_HOME)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Removes the databases of this run's data folders, once xdist's workers have ended."""
    if hasattr(session.config, "workerinput"):
        return
    factory: pytest.TempPathFactory | None = getattr(session.config, "_tmp_path_factory", None)
    if factory is None:
        return
    remove_databases(SYSTEM_HOME, of=factory.getbasetemp())


def remove_databases(home: Path, *, of: Path) -> None:
    """Removes each database in `home` whose data folder lies in the folder `of`."""
    for owner in home.glob(f"*/{OWNER}"):
        if Path(owner.read_text().strip()).is_relative_to(of):
            shutil.rmtree(owner.parent, ignore_errors=True)


def remove_dead_runs(parent: Path) -> None:
    """Removes pytest's folders of runs whose process is gone and has not let go of its lock."""
    for lock in parent.glob("pytest-*/.lock"):
        # One that ends meanwhile takes its lock away.
        with suppress(OSError):
            pid = lock.read_text().strip()
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(lock.parent, ignore_errors=True)


def remove_dead_servers(parent: Path) -> None:
    """Removes the databases of test servers whose process is gone."""
    for folder in parent.glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def remove_orphans(home: Path) -> None:
    """Removes each database in `home` whose data folder, one of pytest's, is gone."""
    for owner in home.glob(f"*/{OWNER}"):
        with suppress(OSError):
            data = Path(owner.read_text().strip())
            if "pytest-of-" in str(data) and not data.exists():
                shutil.rmtree(owner.parent, ignore_errors=True)
