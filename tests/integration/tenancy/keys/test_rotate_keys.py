"""The how-to on narrow keys and their rotation, run as it is printed, against a real server."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass, make_single, running

PAGE = "how-to/rotate-and-narrow-keys.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    settings = {"agent": {"enabled": False}}
    with running(make_single(tmp_path_factory.mktemp("keys") / "data", settings)) as server:
        yield server


def status(server: Windlass, key: str, path: str) -> int:
    with server.http(key) as http:
        return http.get(path).status_code


def test_the_page_on_rotation_is_true(
    server: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    pages.run(pages.script(PAGE), environment, tmp_path)
    old, new = ((tmp_path / name).read_text().strip() for name in ("ci.key", "ci-new.key"))
    assert old != new
    for key in (old, new):
        assert status(server, key, "/v1/files") == 200
        assert status(server, key, "/v1/fine_tuning/jobs") == 403
        with server.http(key) as http:
            said = http.get("/v1/me").json()["key"]
        assert (said["scopes"], said["networks"]) == (["files.read"], [])
        assert said["models"] == ["ft:llama-3:*", "llama-3"]
        assert said["tags"] == {"team": "search", "env": "ci"}
        assert said["expires_at"] > 0
    with server.http() as http:
        policy = http.get("/v1/organization/key_policy").json()
    assert (policy["longest_life"], policy["unused_days"]) == (0, 90)

    monkeypatch.setenv("WINDLASS_BASE_URL", server.url)
    monkeypatch.setenv("WINDLASS_API_KEY", server.owner_key)
    with server.http() as http:
        body = {"name": "program", "role": "organization_owner"}
        own = http.post("/v1/api_keys", json=body).json()["value"]
    monkeypatch.setitem(os.environ, "WINDLASS_API_KEY", own)
    scope: dict[str, Any] = {}
    exec(pages.blocks(PAGE, "python")[0], scope)
    assert [status(server, key, "/v1/me") for key in (own, scope["secret"])] == [200, 200]
