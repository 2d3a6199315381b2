"""Databases that a run of root leaves outside its temporary folder are removed at its end.

The account that runs PostgreSQL cannot enter pytest's folders, which are root's alone, so each
server that a test starts keeps its database in the system's folder: 70 MB that nothing comes
back to, a hundred times a run.
"""

import shutil
from pathlib import Path

import pytest

from windlass.embedded_postgres.place import OWNER, SYSTEM_HOME


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
