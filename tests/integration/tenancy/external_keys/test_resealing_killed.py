"""kill -9 at each step of sealing secrets and keys anew: nothing is lost, the next one goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.faults.kill_points.points import named_points
from tests.integration.tenancy.external_keys import resealer

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.errors import Unavailable
from windlass.core.keyring import open_keyring
from windlass.core.killpoints import VARIABLE
from windlass.core.quotas import Quotas
from windlass.users.encryption.data_keys import DataKeyStore
from windlass.users.encryption.keepers import KeyKeepers
from windlass.users.encryption.object_keys import ObjectKeyStore
from windlass.users.encryption.opening import ObjectKeyOpening
from windlass.users.encryption.project_keys import ProjectDataKeys
from windlass.users.encryption.resealing import Resealing
from windlass.users.encryption.secrets import SecretStore
from windlass.users.store import TenantStore

POINTS = ("secrets.resealed", "object_keys.resealed", "secrets.settled")


def test_every_point_of_sealing_anew_is_tried() -> None:
    kinds = ("secrets.", "object_keys.")
    assert {point for point in named_points() if point.startswith(kinds)} == set(POINTS)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url, pool_size=4)
    yield opened
    await opened.close()


@dataclass
class Sealed:
    """A project whose secrets wait to be sealed by its new data key."""

    project: str
    names: list[str]
    secrets: SecretStore
    resealing: Resealing
    keys: ProjectDataKeys
    organization: str
    # A key for objects, of each data key that there was.
    object_keys: dict[str, bytes]
    stored_keys: ObjectKeyStore
    database: Database

    async def sealed(self) -> Sequence[tuple[str, bytes]]:
        return await self.secrets.sealed_otherwise(self.project, b"none", after="", limit=10)

    async def check(self) -> None:
        for name in self.names:
            assert await self.secrets.reveal(self.project, name) == name.encode()
        for key_id, secret in self.object_keys.items():
            assert (await self.opening.open(self.project, key_id)).secret == secret

    @property
    def opening(self) -> ObjectKeyOpening:
        return ObjectKeyOpening(self.stored_keys, self.keys)

    async def replace(self) -> None:
        """Gives the project another data key."""
        new = await self.keys.new(self.organization, self.project, "")
        await DataKeyStore(self.database).replace(new)
        key_id = new.key.object_key_id
        self.object_keys[key_id] = (await self.opening.open(self.project, key_id)).secret


@pytest.fixture
async def sealed(database: Database, tmp_path: Path) -> AsyncIterator[Sealed]:
    settings = Settings(data_dir=tmp_path / "data")
    keyring = await open_keyring(settings, database)
    keepers = KeyKeepers(settings.external_keys, keyring.envelope("external keys' credentials"))
    keys, secrets = resealer.assembled(database, keepers, settings, keyring)
    tenants = TenantStore(database, Quotas(settings.quotas))
    organization = (await tenants.create_organization("Acme", owner="ann")).id
    project = (await tenants.create_project(organization, "Red", owner="ann")).id
    names = [f"s{number}" for number in range(5)]
    for name in names:
        await secrets.put(project, name, name.encode())
    stored = ObjectKeyStore(database)
    resealing = Resealing(database, keys, secrets, stored)
    made = Sealed(project, names, secrets, resealing, keys, organization, {}, stored, database)
    for _ in range(3):
        await made.replace()
    yield made
    await keepers.close()


async def test_whatever_is_killed_every_secret_opens(
    sealed: Sealed, database: Database, database_url: str, tmp_path: Path
) -> None:
    points = tmp_path / "points"
    points.mkdir()
    for point in (POINTS[0], *POINTS[:2], *POINTS[1:]):
        (points / point).touch()
        assert run(database_url, tmp_path, points) == -signal.SIGKILL
        await sealed.check()
        # As when the dead one's lease has run out.
        async with database.begin() as connection:
            await connection.execute(sa.text("UPDATE users_data_keys SET lease_until = NULL"))
    assert run(database_url, tmp_path, points) == 0
    async with database.autocommit() as connection:
        rows = (await connection.execute(sa.text("SELECT settled FROM users_data_keys"))).all()
    assert [row.settled for row in rows] == [True]
    await sealed.check()
    # One of each data key that there was, and all sealed by the last.
    assert len(sealed.object_keys) == 3
    query = "SELECT count(DISTINCT data_key_id) FROM users_object_keys"
    async with database.autocommit() as connection:
        assert (await connection.execute(sa.text(query))).scalar_one() == 1


async def test_what_is_late_seals_by_no_former_key(sealed: Sealed, database: Database) -> None:
    """One process seals by a key that another has replaced meanwhile, and will delete."""
    rows = DataKeyStore(database)
    name, (_, envelope) = sealed.names[0], (await sealed.sealed())[0]
    late = await rows.current(sealed.project)
    await rows.replace(await sealed.keys.new(sealed.organization, sealed.project, ""))
    with pytest.raises(Unavailable):
        await sealed.secrets.replace(sealed.project, name, envelope, b"by the former", key=late)
    assert (await sealed.sealed())[0] == (name, envelope)
    while await sealed.resealing.once():
        pass
    await sealed.check()


async def test_one_that_is_damaged_keeps_no_other_from_it(
    sealed: Sealed, database: Database
) -> None:
    async def do(statement: str) -> list[Any]:
        async with database.begin() as connection:
            done = await connection.execute(sa.text(statement))
            return list(done.all()) if done.returns_rows else []

    # The first by name, and of the same key as the others.
    await do(
        "INSERT INTO users_secrets SELECT project_id, 'a', substring(envelope, 1, 100), 1, 1"
        " FROM users_secrets WHERE name = 's0'"
    )
    assert await sealed.resealing.once()
    marks = "SELECT name FROM users_secrets, users_data_keys WHERE mark = substring(envelope, 1, 8)"
    assert sorted(row.name for row in await do(marks)) == sealed.names
    # It is looked for again later, until it is gone.
    assert not await sealed.resealing.once()
    await do("DELETE FROM users_secrets WHERE name = 'a'")
    await do("UPDATE users_data_keys SET retry_at = 0")
    assert await sealed.resealing.once()
    assert await sealed.resealing.has_none()
    await sealed.check()


def run(url: str, folder: Path, points: Path) -> int:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "DATABASE": url,
        VARIABLE: str(points),
    }
    command = (sys.executable, resealer.__file__, str(folder / "data"))
    return subprocess.run(command, env=environment, check=False, timeout=60).returncode
