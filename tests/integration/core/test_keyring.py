"""The root key on a real Postgres: shared, rotated, and never opened by a stranger."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.fakes import vault

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import Envelope, KeyringError, open_keyring

ONE, TWO = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url, pool_size=4)
    yield opened
    await opened.close()


def settings(data: Path, **master_key: Any) -> Settings:
    return Settings.model_validate({"data_dir": data, "master_key": master_key})


async def test_replicas_with_one_master_key_derive_the_same(
    database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "mounted"
    file.write_text(ONE + "\n")
    replicas = [
        settings(tmp_path / "a", key=ONE),
        settings(tmp_path / "b", file=file),
        settings(tmp_path / "c", key=ONE),
    ]
    # All at once, as a first start of several processes is.
    rings = await asyncio.gather(*(open_keyring(one, database) for one in replicas))
    assert len({ring.derive("purpose") for ring in rings}) == 1
    assert rings[0].derive("purpose") != rings[0].derive("another purpose")
    made = await asyncio.gather(*(ring.shared("ca", lambda: os.urandom(16)) for ring in rings))
    assert len(set(made)) == 1
    assert not [path for one in replicas for path in one.data_dir.glob("**/*")]


async def test_a_data_folder_of_its_own_has_another_key_and_says_so(
    database: Database, tmp_path: Path
) -> None:
    first = await open_keyring(settings(tmp_path / "a"), database)
    missing = rf"{tmp_path}/b/keys/master\.key does not exist.*master_key\.file"
    with pytest.raises(KeyringError, match=missing):
        await open_keyring(settings(tmp_path / "b"), database)
    assert not (tmp_path / "b").exists(), "a key that opens nothing is not made"
    (tmp_path / "b/keys").mkdir(parents=True)
    (tmp_path / "b/keys/master.key").write_bytes(os.urandom(32))
    with pytest.raises(KeyringError, match=r"not the one of this database .*master_key\.file"):
        await open_keyring(settings(tmp_path / "b"), database)
    again = await open_keyring(settings(tmp_path / "a"), database)
    assert again.derive("x") == first.derive("x")
    assert (tmp_path / "a/keys/master.key").stat().st_mode & 0o777 == 0o600


async def test_a_master_key_rotates_and_the_old_one_retires(
    database: Database, tmp_path: Path
) -> None:
    old = await open_keyring(settings(tmp_path, key=ONE), database)
    both = await open_keyring(settings(tmp_path, key=f"{TWO},{ONE}"), database)
    assert (await open_keyring(settings(tmp_path, key=TWO), database)).derive("x") == (
        both.derive("x")
    )
    assert both.derive("x") == old.derive("x")
    with pytest.raises(KeyringError):
        await open_keyring(settings(tmp_path, key=ONE), database)


async def test_a_local_key_moves_to_vault(database: Database, tmp_path: Path) -> None:
    before = await open_keyring(settings(tmp_path, key=ONE), database)
    with vault.running() as address:
        transit = {"address": address, "token": vault.TOKEN}
        await open_keyring(settings(tmp_path, key=ONE, vault=transit), database)
        alone = await open_keyring(settings(tmp_path / "b", vault=transit), database)
        assert alone.derive("x") == before.derive("x")
    with pytest.raises(KeyringError, match="does not answer"):
        await open_keyring(settings(tmp_path, vault=transit), database)


async def test_secrets_sealed_before_there_was_a_root_key_still_open(
    database: Database, tmp_path: Path
) -> None:
    former = os.urandom(32)
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "secrets.key").write_bytes(former)
    sealed = Envelope([former]).seal(b"token", context="proj/name")
    envelope = (await open_keyring(settings(tmp_path), database)).envelope("tenants' secrets")
    assert envelope.open(sealed, context="proj/name") == b"token"
    assert not envelope.is_current(sealed)
    assert [path.name for path in keys.iterdir()] == ["master.key"]


async def test_the_database_alone_tells_nothing(database: Database, tmp_path: Path) -> None:
    ring = await open_keyring(settings(tmp_path, key=ONE), database)
    await ring.shared("ca", lambda: b"a private key")
    async with database.autocommit() as connection:
        dump = str((await connection.execute(sa.text("SELECT * FROM core_root_keys"))).all())
        dump += str((await connection.execute(sa.text("SELECT * FROM core_shared_secrets"))).all())
    assert "a private key" not in dump
    assert ring.derive("x").hex() not in dump


@pytest.mark.parametrize("wrong", ["short", "AAAA", f"{ONE},"])
async def test_a_key_that_is_none_is_refused(
    database: Database, tmp_path: Path, wrong: str
) -> None:
    with pytest.raises(KeyringError, match="base64 of 32 bytes"):
        await open_keyring(settings(tmp_path, key=wrong), database)
