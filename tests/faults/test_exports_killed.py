"""kill -9 at every step of an export: the next process ends it, and its archive is whole."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.faults.kill_points.points import named_points
from tests.support.environments import postgres
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.core.killpoints import VARIABLE

pytestmark = pytest.mark.faults

CONTENT = b"the owner shall have this\n"
FILES = 3
SHORT = ("exports.files.stored", "exports.manifest")
LONG = (
    "exports.files.recorded",
    "exports.files.done",
    "exports.ready",
    "exports.removed",
)


@dataclass
class ExportSite:
    windlass: Windlass
    url: str
    points: Path

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def site(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExportSite]:
    folder = tmp_path_factory.mktemp("exports")
    points = folder / "points"
    points.mkdir()
    with postgres.fresh_database(postgres_url) as url:
        plain = url.replace("+psycopg", "")
        settings = {"agent": {"enabled": False}, "database": {"url": plain}}
        made = make_single(folder / "data", settings)
        made.environments["all"] = {VARIABLE: str(points)}
        with running(made):
            with made.http() as http:
                for number in range(FILES):
                    sent = {"file": (f"{number}.txt", CONTENT)}
                    answer = http.post("/v1/files", data={"purpose": "user_data"}, files=sent)
                    assert answer.status_code == 200, answer.text
            yield ExportSite(made, plain, points)


@pytest.mark.parametrize(
    "point", [*SHORT, *(pytest.param(point, marks=pytest.mark.long) for point in LONG)]
)
def test_an_export_outlives_kill_9(site: ExportSite, point: str) -> None:
    windlass = site.windlass
    with windlass.http() as http:
        (site.points / point).touch()
        made = http.post("/v1/exports", json={}).json()
        # The one before goes with its objects, which is where `removed` is.
        if point == "exports.removed":
            site.execute("UPDATE core_exports SET expires_at = 0")
    wait_until((site.points / f"{point}.reached").exists, point)
    windlass.kill()
    # As if the dead process's leases had run out.
    for table in ("core_exports", "core_export_steps"):
        site.execute(f"UPDATE {table} SET lease_until = now()")
    windlass.start()
    windlass.wait_ready()
    content = windlass.data / "objects" / "content" / "exports"
    with windlass.http() as http:
        if point == "exports.removed":
            wait_until(
                lambda: not content.exists() and http.get("/v1/exports").json()["data"] == []
            )
            return

        def shown() -> dict[str, Any] | None:
            found: dict[str, Any] = http.get(f"/v1/exports/{made['id']}").json()
            return found if found["state"] == "ready" else None

        done = wait_until(shown)
        archive = http.get(f"/v1/exports/{made['id']}/content").content
    assert len(archive) == done["bytes"]
    step = next(one for one in done["steps"] if one["service"] == "files")
    assert (step["objects"], step["rows"]["files_files"]) == (FILES, FILES)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = {one.name: tar.extractfile(one) for one in tar}
        read = {name: file.read() for name, file in files.items() if file}
    manifest = json.loads(read.pop("manifest.json"))
    told = {one["name"]: one["sha256"] for one in manifest["files"]}
    assert told == {name: hashlib.sha256(one).hexdigest() for name, one in read.items()}
    assert sum(one == CONTENT for one in read.values()) == FILES


def test_every_point_has_a_case() -> None:
    """One service stands for all: their points are of one piece of code."""
    named = {point for point in named_points() if point.startswith("exports.")}
    families = {point for point in (*SHORT, *LONG) if not point.startswith("exports.files.")}
    assert named == {"exports.", *families}
