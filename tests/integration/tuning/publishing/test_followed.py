"""Engines follow a full-parameter run: each saved version in place, by rights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.tuning.publishing.following import (
    PublishingRun,
    asked,
    engine_of,
    imported,
    settings,
    until_followed,
)
from tests.support.factories.toy_model import make_model
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Windlass]:
    data = tmp_path_factory.mktemp("server") / "data"
    with running(make_single(data, settings(folder, {"medium": "objects"}))) as server:
        imported(server, "mine", folder)
        yield server
    assert not list((data / "tuning-versions").glob("*"))


def test_each_version_is_served_in_place_and_named(
    server: Windlass, folder: Path, tmp_path: Path
) -> None:
    run, shell = PublishingRun.begun(server, folder), Shell(server, tmp_path)
    before, first = run.step()
    shell.data("models", "activate", "mine", "--follow", run.follow)
    until_followed(server, "mine", 1)
    engine = engine_of(server, "mine")
    assert (engine["follow"], engine["message"]) == (run.follow, "")
    assert asked(server, "mine") == ("1", first)
    path, second = run.step()
    until_followed(server, "mine", 2)
    assert asked(server, "mine") == ("2", second)
    assert engine_of(server, "mine")["id"] == engine["id"], "it was not started anew"
    assert "WEIGHTS" in shell.data("engines", "list")
    # What is newest is deleted: it goes on by what it has, says why, and takes what comes next.
    shell.data("tuning", "checkpoints", "delete", path, "--yes")
    last, third = run.step()
    until_followed(server, "mine", 3)
    assert asked(server, "mine") == ("3", third)
    for one in (last, before):
        shell.data("tuning", "checkpoints", "delete", one, "--yes")
    wait_until(lambda: "may read" in engine_of(server, "mine")["message"], "why", 60)
    assert asked(server, "mine") == ("3", third)
    # An engine that follows no longer is another one, with its model's own weights.
    shell.data("models", "activate", "mine", "--follow", "")
    wait_until(lambda: asked(server, "mine")[0] == "0", "another engine", 60)
    assert engine_of(server, "mine")["follow"] == ""
    run.service.close("success").result()


def test_only_who_may_read_the_newest_checkpoint_follows(server: Windlass, folder: Path) -> None:
    """A project of the same organization by what is published, another organization never."""
    run = PublishingRun.begun(server, folder)
    path, first = run.step()
    _, _, checkpoint = path.removeprefix("tinker://").partition("/")
    published = f"/api/v1/training_runs/{run.id}/checkpoints/{checkpoint}/publish"
    with server.http() as http, server.http() as others:
        project = http.post("/v1/projects", json={"title": "reader"}).json()["id"]
        imported(server, "theirs", folder, project)
        made = others.post("/v1/organizations", json={"title": "Others"}).json()["id"]
        others.headers["OpenAI-Organization"] = made
        foreign = others.post("/v1/projects", json={"title": "theirs"}).json()["id"]
        body = {"name": "key", "project_id": foreign, "role": "project_owner"}
        key = others.post("/v1/api_keys", json=body).json()["value"]
        with Client(server.url, key) as client:
            client.models.import_folder("foreign", folder)

        def put(model: str, follow: str, **headers: str) -> tuple[int, str | None]:
            answer = http.put(f"/v1/servings/{model}", json={"follow": follow}, headers=headers)
            return answer.status_code, answer.json().get("error", {}).get("param")

        theirs = {"OpenAI-Project": project}
        stranger = {"Authorization": f"Bearer {key}"}
        assert put("theirs", run.follow, **theirs) == (404, "follow")
        assert put("theirs", "tinker://never", **theirs) == (404, "follow")
        for wrong in ("run", "tinker://a/b", "tinker://\n"):
            assert put("theirs", wrong, **theirs) == (400, "follow")
        http.post(published).raise_for_status()
        assert put("foreign", run.follow, **stranger) == (404, "follow")
        assert put("theirs", run.follow, **theirs) == (200, None)
        until_followed(server, "theirs", 1, project)
        assert asked(server, "theirs", project) == ("1", first)
        # The next one is not published: nobody else gets it, and the engine goes on.
        run.step()
        imported(server, "own", folder)
        assert put("own", run.follow) == (200, None)
        until_followed(server, "own", 2)
        assert asked(server, "theirs", project) == ("1", first)
        # What was lent is taken back, and says so.
        http.delete(published).raise_for_status()
        wait_until(
            lambda: "may not read" in engine_of(server, "theirs", project)["message"], "why", 60
        )
        run.step()
        until_followed(server, "own", 3)
        assert engine_of(server, "theirs", project)["weight_version"] == 1
    run.service.close("success").result()


@pytest.mark.long
def test_what_cannot_follow_is_refused_by_its_field(server: Windlass, folder: Path) -> None:
    run = PublishingRun.begun(server, folder)
    run.step()
    imported(server, "fits", folder)
    other = make_model(folder.parent / "other", hidden=32)
    imported(server, "differs", other)
    with Client(server.url, server.owner_key) as client:
        client.models.import_folder("global", folder, for_everyone=True)
    with server.http() as http:

        def put(model: str, **body: Any) -> httpx.Response:
            return http.put(f"/v1/servings/{model}", json={"follow": run.follow, **body})

        refused = put("global")
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "follow")
        # An engine of another model refuses the weights, says so, and answers as before.
        assert put("differs").is_success
        wait_until(
            lambda: "does not take" in engine_of(server, "differs").get("message", ""), "why", 90
        )
        assert asked(server, "differs")[0] == "0"
        http.delete("/v1/servings/differs").raise_for_status()
    run.service.close("success").result()
