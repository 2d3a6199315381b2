"""The how-to on the audit log, run as it is printed, and the same commands after an attack."""

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from standardwebhooks import Webhook
from tests.support.environments import postgres
from tests.support.fakes.webhook_receiver import ALLOWED, receiving
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until

PAGE = "how-to/export-and-verify-the-audit-log.md"


@pytest.fixture(scope="module")
def server(
    postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Windlass, str]]:
    with postgres.fresh_database(postgres_url) as url:
        plain = url.replace("+psycopg", "")
        settings = {
            "agent": {"enabled": False}, "database": {"url": plain}, "webhooks": ALLOWED,
        }  # fmt: skip
        made = make_single(tmp_path_factory.mktemp("audit") / "data", settings)
        with running(made):
            yield made, plain


def attack(url: str, statement: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE rbac_audit_events DISABLE TRIGGER USER")
        connection.execute(statement.encode())
        connection.execute("ALTER TABLE rbac_audit_events ENABLE TRIGGER USER")


def test_the_page_on_the_audit_log_is_true(
    server: tuple[Windlass, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    windlass, url = server
    titles = ["one", "two", "three"]
    with windlass.http() as http:
        for title in titles:
            assert http.post("/v1/projects", json={"title": title}).status_code == 200
        wait_until(lambda: len(http.get("/v1/audit_events").json()["data"]) >= len(titles))

        def is_signed() -> bool:
            # The loop looks by itself too, but not within a second.
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("SELECT pg_notify('windlass_wake', 'audit')")
            return bool(http.get("/v1/audit_checkpoints").json()["data"])

        wait_until(is_signed)
    shell = Shell(windlass, tmp_path)
    environment = shell.environment | shell.owner
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    with receiving() as receiver:
        script = pages.script(PAGE, {"https://siem.example.com/hook": f"'{receiver.url}'"})
        said = pages.run(script, environment, tmp_path)
        wait_until(lambda: receiver.requests)
    assert "SIEM" in said
    ((headers, body), *_) = receiver.requests
    secret = (tmp_path / "hook.secret").read_text().strip()
    Webhook(secret).verify(body, headers, json_parse=False)
    exported = [json.loads(line) for line in body.splitlines()]
    assert [one["metadata"]["sequence"] for one in exported] == list(range(1, len(exported) + 1))
    assert said.count("events are as they were recorded.") == 2
    assert said.count("A signed checkpoint confirms them up to") == 2
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().split("\n")[:-1]]
    events = [line for line in lines if "checkpoint" not in line]
    assert [one["sequence"] for one in events] == list(range(1, len(events) + 1))
    monkeypatch.chdir(tmp_path)
    for name in ("WINDLASS_BASE_URL", "WINDLASS_API_KEY"):
        monkeypatch.setenv(name, environment[name])
    by_openai, by_hand = pages.blocks(PAGE, "python")
    exec(by_hand, {})
    exec(by_openai, {})
    assert capsys.readouterr().out.count("project.created") == len(titles)

    verified = shell.object("audit", "verify")
    assert (verified["sequence"] >= len(events), verified["fault"]) == (True, None)
    alone = shell.run("audit", "verify", "--file", "audit.jsonl")
    assert (alone.returncode, "go together" in alone.stderr) == (2, True)
    attack(url, "UPDATE rbac_audit_events SET user_id = 'eve' WHERE sequence = 2")
    done = shell.run("audit", "verify")
    assert done.returncode == 1
    assert "Event 2 is not right (changed)" in done.stderr
    # What was exported before is as it was, and no key but the right one says so.
    kept = ["audit", "verify", "--file", "audit.jsonl", "--key"]
    assert shell.run(*kept, "audit-key.json").returncode == 0
    assert shell.run(*kept, "audit.jsonl").returncode == 2
