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
from windlass.core.keyring.root import open_root, retire_others, seal_root
from windlass.core.keyring.seals import SealStore
from windlass.core.keyring.wrapping import LocalWrappingKey, parse_keys

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
    missing = rf"{tmp_path}/b/keys/master\.key does not exist.*master_key"
    with pytest.raises(KeyringError, match=missing):
        await open_keyring(settings(tmp_path / "b"), database)
    assert not (tmp_path / "b").exists(), "a key that opens nothing is not made"
    (tmp_path / "b/keys").mkdir(parents=True)
    (tmp_path / "b/keys/master.key").write_bytes(os.urandom(32))
    with pytest.raises(KeyringError, match=r"not the one of this database .*master_key"):
        await open_keyring(settings(tmp_path / "b"), database)
    again = await open_keyring(settings(tmp_path / "a"), database)
    assert again.derive("x") == first.derive("x")
    assert (tmp_path / "a/keys/master.key").stat().st_mode & 0o777 == 0o600


async def test_a_master_key_rotates_and_the_old_one_retires(
    database: Database, tmp_path: Path
) -> None:
    old = await open_keyring(settings(tmp_path, key=ONE), database)
    both = settings(tmp_path, key=f"{TWO},{ONE}")
    assert (await open_keyring(both, database)).derive("x") == old.derive("x")
    # Until it is retired: a process that has not heard of the new one yet may start again.
    for key in (ONE, TWO):
        ring = await open_keyring(settings(tmp_path, key=key), database)
        assert ring.derive("x") == old.derive("x")
    opened, store = await open_root(both, database), SealStore(database)
    assert [seal.master_key_id for seal in opened.seals] == [_name(ONE), _name(TWO)]
    assert await retire_others(opened, store) == [_name(ONE)]
    with pytest.raises(KeyringError):
        await open_keyring(settings(tmp_path, key=ONE), database)
    ring = await open_keyring(settings(tmp_path, key=TWO), database)
    assert ring.derive("x") == old.derive("x")
    assert [seal.master_key_id for seal in await store.all()] == [_name(TWO)]


async def test_what_does_not_seal_cannot_retire_the_others(
    database: Database, tmp_path: Path
) -> None:
    await open_keyring(settings(tmp_path, key=ONE), database)
    store = SealStore(database)
    opened = await open_root(settings(tmp_path, key=f"{TWO},{ONE}"), database)
    with pytest.raises(KeyringError, match="does not seal the root key"):
        await retire_others(opened, store)
    await asyncio.gather(*(seal_root(opened, store) for _ in range(3)))
    opened = await open_root(settings(tmp_path, key=f"{TWO},{ONE}"), database)
    await seal_root(opened, store)
    with pytest.raises(KeyringError, match="sealed anew meanwhile"):
        await retire_others(opened, store)
    assert len(await store.all()) == 2


async def test_a_local_key_moves_to_vault_and_back(database: Database, tmp_path: Path) -> None:
    before = await open_keyring(settings(tmp_path, key=ONE), database)
    with vault.running() as address:
        transit = {"address": address, "token": vault.TOKEN}
        both = settings(tmp_path, key=ONE, vault=transit)
        await open_keyring(both, database)
        alone = settings(tmp_path / "b", vault=transit)
        assert (await open_keyring(alone, database)).derive("x") == before.derive("x")
        vault.rotate(address)
        await seal_root(await open_root(alone, database), SealStore(database))
        assert (await open_keyring(alone, database)).derive("x") == before.derive("x")
        back = settings(tmp_path, key=ONE, vault=transit, keeper="local")
        opened = await open_root(back, database)
        assert await retire_others(opened, SealStore(database)) == ["vault:transit/windlass"]
        with pytest.raises(KeyringError, match="not the one of this database"):
            await open_keyring(alone, database)
    assert (await open_keyring(settings(tmp_path, key=ONE), database)).derive("x") == (
        before.derive("x")
    )


async def test_a_keeper_that_is_away_stops_a_start_unless_another_opens(
    database: Database, tmp_path: Path
) -> None:
    with vault.running() as address:
        transit = {"address": address, "token": vault.TOKEN}
        before = await open_keyring(settings(tmp_path, vault=transit), database)
        await open_keyring(settings(tmp_path, key=ONE, keeper="local", vault=transit), database)
    with pytest.raises(KeyringError, match=r"cannot be used: .*does not answer"):
        await open_keyring(settings(tmp_path, vault=transit), database)
    # What was opened works on.
    assert await before.shared("ca", lambda: b"made") == b"made"
    both = await open_keyring(settings(tmp_path, key=ONE, vault=transit), database)
    assert both.derive("x") == before.derive("x")


async def test_a_keeper_that_is_not_named_is_refused(database: Database, tmp_path: Path) -> None:
    with pytest.raises(KeyringError, match=r"master_key\.keeper is aws"):
        await open_keyring(settings(tmp_path, key=ONE, keeper="aws"), database)


def _name(key: str) -> str:
    return LocalWrappingKey(parse_keys(key)).id


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
