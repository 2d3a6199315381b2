"""kill -9 at every step of an erasure: the next process ends it, and its report counts once."""

import json
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

from windlass.audit_chain.checkpoints import CheckpointKey
from windlass.core.killpoints import VARIABLE

pytestmark = pytest.mark.faults

CONTENT = b"nobody shall find this\n"
FILES = 3
SHORT = ("erasures.files.counted", "erasures.files.removed")
LONG = (
    "erasures.begun",
    "erasures.files.rows",
    "erasures.files.done",
    "erasures.repeated",
    "erasures.reported",
)


@dataclass
class Site:
    windlass: Windlass
    url: str
    points: Path

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def site(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("erasures")
    points = folder / "points"
    points.mkdir()
    with postgres.fresh_database(postgres_url) as url:
        plain = url.replace("+psycopg", "")
        settings = {
            "agent": {"enabled": False},
            "database": {"url": plain},
            "leaving": {"grace_seconds": 0},
        }
        made = make_single(folder / "data", settings)
        made.environments["all"] = {VARIABLE: str(points)}
        with running(made):
            yield Site(made, plain, points)


@pytest.mark.parametrize(
    "point", [*SHORT, *(pytest.param(point, marks=pytest.mark.long) for point in LONG)]
)
def test_an_erasure_outlives_kill_9(site: Site, point: str) -> None:
    windlass = site.windlass
    with windlass.http() as http:
        project = http.post("/v1/projects", json={"title": point}).json()["id"]
        own = {"OpenAI-Project": project}
        for number in range(FILES):
            sent = {"file": (f"{number}.txt", CONTENT)}
            answer = http.post("/v1/files", data={"purpose": "user_data"}, files=sent, headers=own)
            assert answer.status_code == 200, answer.text
        (site.points / point).touch()
        deleted = http.delete(f"/v1/projects/{project}", params={"title": point})
        assert deleted.status_code == 200, deleted.text
    wait_until((site.points / f"{point}.reached").exists, point)
    windlass.kill()
    # As if the dead process's leases had run out.
    for table in ("core_erasures", "core_erasure_steps"):
        site.execute(f"UPDATE {table} SET lease_until = now()")
    windlass.start()
    windlass.wait_ready()
    with windlass.http() as http:

        def shown() -> dict[str, Any] | None:
            found: dict[str, Any] = http.get(f"/v1/erasures/{deleted.json()['id']}").json()
            return found if found["state"] == "erased" else None

        done = wait_until(shown)
    key = CheckpointKey.public(json.loads(done["public_key"]))
    services = key.verify_claims("windlass-erasure-report", done["report"])["services"]
    assert services["files"] == {
        "rows": {"files_files": FILES, "files_uploads": FILES},
        "objects": FILES,
        "bytes": FILES * len(CONTENT),
    }
    content = windlass.data / "objects" / "content"
    assert not [path for path in content.rglob("*") if project in str(path)]


def test_every_point_has_a_case() -> None:
    """One service stands for all: their points are of one piece of code."""
    named = {point for point in named_points() if point.startswith("erasures.")}
    families = {point for point in (*SHORT, *LONG) if not point.startswith("erasures.files.")}
    assert named == {"erasures.", *families}
