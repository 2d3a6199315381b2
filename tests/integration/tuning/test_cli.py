"""`windlass tuning` shows and deletes what loops of the SDK have made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Windlass]:
    settings = {
        "agent": {"enabled": False},
        "tuning": {"trainer": "null", "base_models": ["toy"]},
    }
    with running(make_single(tmp_path / "data", settings)) as server:
        yield server


def made(server: Windlass) -> tuple[str, str, str]:
    """A session, its run and a checkpoint of that."""
    with server.http() as http:

        def post(path: str, body: object) -> dict[str, str]:
            answer = http.post(f"/api/v1/{path}", json=body)
            assert answer.status_code == 200, answer.text
            found: dict[str, str] = answer.json()
            return found

        def result(future: dict[str, str]) -> dict[str, str]:
            asked = {"request_id": future["request_id"]}

            def found() -> dict[str, str] | None:
                answer = post("retrieve_future", asked)
                return None if answer.get("type") == "try_again" else answer

            return wait_until(found, "a result")

        session = post("create_session", {"display_name": "a red fox"})["session_id"]
        body = {"session_id": session, "model_seq_id": 0, "base_model": "toy"}
        run = result(post("create_model", body))["model_id"]
        saved = result(post("save_weights", {"model_id": run, "path": "s", "seq_id": 1}))
        return session, run, saved["path"]


def test_what_loops_made_is_listed_shown_and_deleted(server: Windlass, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)
    session, run, path = made(server)
    for noun, name in (("sessions", session), ("runs", run), ("checkpoints", path)):
        assert shell.data("tuning", noun, "list", "-o", "name").split() == [name]
        assert shell.object("tuning", noun, "show", name)["id"] == name
    assert session in shell.data("tuning", "sessions", "list", "--name", "fox")
    assert shell.data("tuning", "sessions", "list", "--name", "hen", "-o", "name") == ""
    assert shell.data("tuning", "checkpoints", "list", "--run", run, "-o", "name").strip() == path
    unknown = shell.run("tuning", "runs", "show", f"{session}:train:9")
    assert unknown.returncode == 1
    assert "No such model" in unknown.stderr
    copy = shell.object("tuning", "checkpoints", "copy", path)["id"]
    assert copy.endswith(":train:0/weights/s")
    for verb, public in (("publish", True), ("unpublish", False)):
        assert shell.run("tuning", "checkpoints", verb, path).returncode == 0
        with server.http() as http:
            listed = http.get("/api/v1/checkpoints").json()["checkpoints"]
        assert {one["tinker_path"]: one["public"] for one in listed} == {path: public, copy: False}
    assert shell.run("tuning", "checkpoints", "publish", "nothing").returncode == 1
    for one in (path, copy):
        shell.run("tuning", "checkpoints", "delete", one, "--yes")
    assert shell.data("tuning", "checkpoints", "list", "-o", "name") == ""
    shell.run("tuning", "runs", "delete", run, "--yes")
    shell.run("tuning", "sessions", "end", session, "--yes")
    (shown,) = shell.data("tuning", "sessions", "list").splitlines()[1:]
    assert "interrupted" in shown
