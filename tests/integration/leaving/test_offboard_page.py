"""The how-to on offboarding, run as it is printed."""

import os
from pathlib import Path

import psycopg
import pytest
from tests.support.environments import postgres
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

PAGE = "how-to/offboard.md"
PROOF = "Prove that it is gone"


def test_the_page_on_offboarding_is_true(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with postgres.fresh_database(postgres_url) as url:
        plain = url.replace("+psycopg", "")
        settings = {"agent": {"enabled": False}, "database": {"url": plain}}
        with running(make_single(tmp_path / "data", settings)) as windlass:
            shell = Shell(windlass, tmp_path)
            environment = shell.environment | shell.owner
            environment["PATH"] = f"{Path(PROGRAM[0]).parent}{os.pathsep}{environment['PATH']}"
            said = pages.run(pages.script(PAGE, until=PROOF), environment, tmp_path)
            assert " held " in said
            assert "undone" in said
            monkeypatch.setenv("WINDLASS_BASE_URL", windlass.url)
            monkeypatch.setenv("WINDLASS_API_KEY", windlass.owner_key)
            exec(pages.blocks(PAGE, "python")[0], {})
            with windlass.http() as http:
                members = http.get("/v1/organization/users").json()["data"]
            assert "bob" not in [one["id"] for one in members]
            # As if the grace period were over.
            with psycopg.connect(plain, autocommit=True) as connection:
                connection.execute("UPDATE core_erasures SET erase_at = 0")
            with windlass.http() as http:

                def erased() -> str:
                    listed = http.get("/v1/erasures").json()["data"]
                    return next((one["id"] for one in listed if one["state"] == "erased"), "")

                done = {"erasure_…": wait_until(erased)}
            said = pages.run(pages.script(PAGE, done, after=PROOF), environment, tmp_path)
            assert "erased" in said
            report = (tmp_path / "report.jws").read_text()
            assert report.count(".") == 2
