"""Backups, through the command: from nothing to a server with its models and secrets."""

import asyncio
import json
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.tenancy.external_keys.resealer import assembled
from tests.support.environments import postgres
from tests.support.processes.command import windlass
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import NO_SPARE, make_single, running

from windlass.core import config
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import open_keyring
from windlass.maintenance.database import open_database
from windlass.users.encryption.keepers import KeyKeepers

NO_AGENT = {"agent": {"enabled": False}}


@pytest.fixture
def home() -> Iterator[Path]:
    with postgres.reachable_folder() as folder:
        home = folder / "a home"
        home.mkdir(mode=0o711)
        yield home


async def revealed(settings: Settings, project: str, name: str) -> bytes:
    """What a server with these settings can open of a tenant's secret."""
    async with open_database(settings) as url:
        database = Database(url, pool_size=2)
        keyring = await open_keyring(settings, database)
        keepers = KeyKeepers(settings.external_keys, keyring.envelope("external keys' credentials"))
        _, store = assembled(database, keepers, settings, keyring)
        try:
            return await store.reveal(project, name)
        finally:
            await database.close()


@pytest.mark.torch
def test_from_nothing_to_a_server_that_answers(home: Path) -> None:
    from tests.support.factories.toy_model import make_model

    first = make_single(home / "my data", NO_SPARE)
    shell = Shell(first, home)
    with running(first, divisible=False):
        shell.data("models", "import", str(make_model(home / "toy")))
        shell.data("secrets", "put", "wandb", given="hunter2\n")
        project = str(shell.object("auth", "status")["project"])
        options = ("--config", str(first.configs["all"]))
        done = windlass(home, "db", "backup", "all of it.backup", "--with-files", *options)
        assert done.returncode == 0, done.stderr
        assert "Warning: it holds the keys" in done.stderr
        assert "Not in it" not in done.stderr
    backup = home / "all of it.backup"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600

    second = make_single(home / "new data", NO_SPARE)
    options = ("--config", str(second.configs["all"]))
    done = windlass(home, "db", "restore", str(backup), *options)
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr
    with running(second, divisible=False):
        shell = Shell(second, home)
        assert shell.data("secrets", "list", "-o", "name") == "wandb"
        answer = shell.object("chat", "toy", "--max-tokens", "4", "--temperature", "0", "say 3")
        assert "content" in answer
    settings = config.load(second.configs["all"])
    assert asyncio.run(revealed(settings, project, "wandb")) == b"hunter2"


def prepared(home: Path, name: str, url: str = "") -> tuple[str, ...]:
    """Options of an installation that has a schema, a root key and no server."""
    (home / name).mkdir(mode=0o711, exist_ok=True)
    file = home / f"{name}.json"
    document = {"data_dir": str(home / name), **NO_AGENT}
    file.write_text(json.dumps({**document, "database": {"url": url}} if url else document))
    options = ("--config", str(file))
    assert windlass(home, "db", "migrate", *options).returncode == 0

    async def make_root_key() -> None:
        settings = config.load(file)
        async with open_database(settings) as found:
            database = Database(found, pool_size=2)
            await open_keyring(settings, database)
            await database.close()

    asyncio.run(make_root_key())
    return options


@pytest.fixture
def databases(postgres_url: str) -> Iterator[tuple[str, str]]:
    with (
        postgres.fresh_database(postgres_url) as first,
        postgres.fresh_database(postgres_url) as second,
    ):
        yield first, second


def test_without_keys_a_restore_says_which_is_missing(
    home: Path, databases: tuple[str, str]
) -> None:
    options = prepared(home, "first", databases[0])
    done = windlass(home, "db", "backup", "b", "--without-keys", *options)
    assert f"Not in it: the keys of {home / 'first'}" in done.stderr
    with tarfile.open(home / "b") as tar:
        assert tar.getnames() == ["database.dump", "manifest.json"]
    file = home / "second.json"
    document = {"data_dir": str(home / "second"), "database": {"url": databases[1]}}
    file.write_text(json.dumps(document))
    done = windlass(home, "db", "restore", "b", "--config", str(file))
    assert done.returncode == 0
    assert f"Warning: {home / 'second/keys/master.key'} does not exist" in done.stderr


def test_a_target_that_holds_something(home: Path, databases: tuple[str, str]) -> None:
    first = prepared(home, "first", databases[0])
    second = prepared(home, "second", databases[1])
    assert windlass(home, "db", "backup", "b", *first).returncode == 0
    again = windlass(home, "db", "backup", "b", *first)
    assert (again.returncode, again.stderr) == (1, "windlass: b exists already.\n")
    key = home / "second/keys/master.key"
    own = key.read_bytes()
    done = windlass(home, "db", "restore", "b", *second)
    assert (done.returncode, f"{key} exists already, and differs" in done.stderr) == (1, True)
    unasked = windlass(home, "db", "restore", "b", "--replace", *second)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    assert key.read_bytes() == own
    done = windlass(home, "db", "restore", "b", "--replace", "--yes", *second)
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr
    assert key.read_bytes() == (home / "first/keys/master.key").read_bytes()
    (kept,) = key.parent.glob("master.key.replaced-*")
    assert kept.read_bytes() == own
    assert [path.name for path in (home / "second").iterdir()] == ["keys"]


@pytest.mark.parametrize("harm", ["a byte", "its end", "all of it"])
def test_a_damaged_backup_changes_nothing(
    home: Path, databases: tuple[str, str], harm: str
) -> None:
    options = prepared(home, "first", databases[0])
    assert windlass(home, "db", "backup", "b", *options).returncode == 0
    content = bytearray((home / "b").read_bytes())
    if harm == "a byte":
        content[len(content) // 2] ^= 1
    (home / "b").write_bytes(content[: {"its end": 20_000, "all of it": 0}.get(harm)])
    target = home / "second.json"
    document = {"data_dir": str(home / "second"), "database": {"url": databases[1]}}
    target.write_text(json.dumps(document))
    done = windlass(home, "db", "restore", "b", "--config", str(target))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "damaged" in done.stderr
    assert not (home / "second").exists()


def test_keys_go_back_when_the_database_refuses(home: Path, databases: tuple[str, str]) -> None:
    options = prepared(home, "first", databases[0])
    assert windlass(home, "db", "backup", "b", *options).returncode == 0
    prepared(home, "second", databases[1])
    third = home / "third.json"
    document = {"data_dir": str(home / "third"), "database": {"url": databases[1]}}
    third.write_text(json.dumps(document))
    done = windlass(home, "db", "restore", "b", "--config", str(third))
    assert (done.returncode, "The database is not empty" in done.stderr) == (1, True)
    assert [path for path in (home / "third").rglob("*") if path.is_file()] == []


def test_status_and_migrate(home: Path, databases: tuple[str, str]) -> None:
    file = home / "windlass.json"
    file.write_text(json.dumps({"data_dir": str(home), "database": {"url": databases[0]}}))
    options = ("--config", str(file))
    empty = windlass(home, "db", "status", "-o", "json", *options)
    assert (empty.returncode, json.loads(empty.stdout)["schema"]) == (1, "none")
    assert "run `windlass db migrate`" in empty.stderr
    done = windlass(home, "db", "migrate", *options)
    assert done.returncode == 0
    assert f"{len(json.loads(empty.stdout)['pending'])} revisions were applied" in done.stderr
    status = windlass(home, "db", "status", "-o", "json", *options)
    shown = json.loads(status.stdout)
    assert (status.returncode, shown["schema"], shown["pending"]) == (
        0,
        shown["release_schema"],
        [],
    )
    assert shown["server"].startswith("PostgreSQL 18")
    assert shown["size"] > 10**6
    nowhere = windlass(home, "db", "status", "--data", "no such folder")
    assert (nowhere.returncode, "there is no data folder" in nowhere.stderr) == (2, True)
