"""The doctor and `config check --connect`, with a server up, down, and in bad health."""

import json
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.environments import postgres
from tests.support.processes.command import windlass
from tests.support.processes.windlass import make_single, running

from windlass.core.config import Settings
from windlass.maintenance.connections import check_connections

NO_AGENT = {"agent": {"enabled": False}}


@pytest.fixture
def home() -> Iterator[Path]:
    with postgres.reachable_folder() as folder:
        home = folder / "a home"
        home.mkdir(mode=0o711)
        yield home


def examined(home: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = windlass(home, "doctor", "-o", "json", *options)
    found = {one["id"]: one for one in json.loads(done.stdout)}
    assert all(bool(one["remedy"]) == (one["level"] != "ok") for one in found.values())
    return done.returncode, found


def test_before_the_first_start_while_it_runs_and_after(home: Path) -> None:
    server = make_single(home / "my data", NO_AGENT)
    options = ("--config", str(server.configs["all"]))
    code, found = examined(home, *options)
    assert (code, found["database"]["level"], found["store"]["level"]) == (0, "ok", "ok")
    assert not (home / "my data" / "postgres").exists(), "it changes nothing"
    with running(server, divisible=False):
        code, up = examined(home, *options)
        assert code == 0, up
        assert "running: windlass" in up["sockets"]["message"]
        assert up["http.port"]["level"] == "warn"
    code, down = examined(home, *options)
    assert code == 0, down
    assert "no server is running" in down["sockets"]["message"]
    for part in ("database", "schema", "clock", "keys", "store"):
        assert (up[part]["level"], down[part]["level"]) == ("ok", "ok"), part
    checked = windlass(home, "config", "check", "--connect", *options)
    assert checked.returncode == 0, checked.stdout
    assert "ok: keys: The master key local:" in checked.stdout

    (home / "my data/keys/master.key").rename(home / "kept.key")
    code, found = examined(home, *options)
    assert (code, found["keys"]["level"]) == (1, "fail")
    assert "keys/master.key does not exist" in found["keys"]["message"]
    checked = windlass(home, "config", "check", "--connect", *options)
    assert (checked.returncode, "error: keys: " in checked.stdout) == (1, True)


def test_what_cannot_be_reached(home: Path) -> None:
    file = home / "windlass.json"
    objects = {"kind": "s3", "bucket": "b", "endpoint_url": "http://127.0.0.1:1"}
    keys = {"access_key_id": "a", "secret_access_key": "hunter2", "region": "r"}
    document: dict[str, Any] = {"data_dir": str(home / "data"), "objects": {**objects, **keys}}
    document |= {"database": {"url": "postgresql://u:hunter2@127.0.0.1:1/d"}, **NO_AGENT}
    file.write_text(json.dumps(document))
    code, found = examined(home, "--config", str(file))
    assert code == 1
    assert "The database cannot be reached" in found["database"]["message"]
    assert found["store"]["level"] == "fail"
    assert "hunter2" not in json.dumps(found)
    shown = windlass(home, "doctor", "--config", str(file))
    assert (shown.returncode, "\n      → " in shown.stdout) == (1, True)


async def test_a_clock_and_agents_that_differ(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = database_url.replace("+psycopg", "")
    sections: dict[str, Any] = {"database": {"url": url}}
    settings = Settings(data_dir=tmp_path, **sections)
    found = {one.part: one for one in await check_connections(settings)}
    assert found["clock"].level == "ok"
    assert found["agents"].message == "None has connected in the last day."
    release = version("windlass")
    agents = [("east", release, 0), ("west", "0.0.9", 0), ("gone", "0.0.1", 2)]
    with psycopg.connect(url, autocommit=True) as connection:
        for name, theirs, days in agents:
            connection.execute(
                "INSERT INTO clusters_clusters (id, name, agent_version, last_seen_at)"
                " VALUES (%(name)s, %(name)s, %(version)s,"
                " now() - make_interval(days => %(days)s))",
                {"name": name, "version": theirs, "days": days},
            )
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 60)
    found = {one.part: one for one in await check_connections(settings)}
    assert found["clock"].level == "warn"
    assert found["clock"].message == "This machine and the database differ by 60.0 s."
    assert "NTP" in found["clock"].remedy
    assert found["agents"].level == "warn"
    assert found["agents"].message == f"This server is {release}; west is 0.0.9."
