"""The how-to on roles of a team's own, run as it is printed, against a real server."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

PAGE = "how-to/give-a-team-roles.md"


def test_the_page_on_roles_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(make_single(tmp_path / "data", {"agent": {"enabled": False}})) as server:
        shell = Shell(server, tmp_path)
        environment = shell.environment | shell.owner
        environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
        pages.run(pages.script(PAGE, until="Change it"), environment, tmp_path)
        key = (tmp_path / "ann.key").read_text().strip()
        with server.http(key) as http:
            assert http.get("/v1/fine_tuning/jobs").status_code == 200
            assert http.put("/v1/secrets/x", json={"value": "y"}).status_code == 403
            me = http.get("/v1/me").json()["principal"]
        with server.http() as http:
            (role,) = http.get(f"/v1/projects/{me['project_id']}/roles").json()["data"]
            (group,) = http.get("/v1/organization/groups").json()["data"]
        environment |= {
            "project": me["project_id"],
            "role": role["id"],
            "group": group["id"],
        }
        pages.run(pages.script(PAGE, after="Change it"), environment, tmp_path)
        with server.http(key) as http:
            wait_until(lambda: http.get("/v1/fine_tuning/jobs").status_code == 401, "the key ends")
        monkeypatch.setenv("WINDLASS_BASE_URL", server.url)
        monkeypatch.setenv("WINDLASS_API_KEY", server.owner_key)
        scope: dict[str, Any] = {}
        exec(pages.blocks(PAGE, "python")[0], scope)
        assert scope["given"].permissions == ["usage.read"]


def test_the_page_on_access_for_an_hour_is_true(tmp_path: Path) -> None:
    with running(make_single(tmp_path / "data", {"agent": {"enabled": False}})) as server:
        shell = Shell(server, tmp_path)
        environment = shell.environment | shell.owner
        environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
        pages.run(pages.script("how-to/grant-access-for-an-hour.md"), environment, tmp_path)
        with server.http((tmp_path / "keeper.key").read_text().strip()) as http:
            wait_until(
                lambda: http.put("/v1/secrets/token", json={"value": "y"}).status_code == 403,
                "the role ends",
            )
