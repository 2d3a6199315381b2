"""kill -9 at every step of an operation: each counts once, and the run ends as one undisturbed."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests.faults.kill_points.points import named_points
from tests.support.environments import postgres
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.core.killpoints import VARIABLE

pytestmark = pytest.mark.faults

POINTS = ("tuning.computed", "tuning.written", "tuning.applied")
AGAIN = "tuning.replayed"
TOLD = "tuning.told"
STEPS = 12


@dataclass
class Site:
    windlass: Windlass
    url: str
    points: Path

    def post(self, path: str, body: Any) -> Any:
        with self.windlass.http() as http:
            answer = http.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def result(self, future: Any) -> Any:
        body = {"request_id": future["request_id"]}

        def found() -> Any:
            answer = self.post("retrieve_future", body)
            return None if answer.get("type") == "try_again" else answer

        return wait_until(found, "a result")

    def recover(self, point: str) -> None:
        """Waits for the end of the process, and starts its successor."""
        wait_until((self.points / f"{point}.reached").exists, point)
        self.windlass.kill()
        with psycopg.connect(self.url, autocommit=True) as connection:
            # As if the dead process's leases had run out.
            connection.execute("UPDATE tuning_runs SET lease_until = now()")
        self.windlass.start()
        self.windlass.wait_ready()


@pytest.fixture(scope="module")
def site(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("tuning")
    points = folder / "points"
    points.mkdir()
    with postgres.fresh_database(postgres_url) as url:
        plain = url.replace("+psycopg", "")
        settings = {
            "agent": {"enabled": False},
            "database": {"url": plain},
            "tuning": {"trainer": "null", "base_models": ["toy"], "snapshot_operations": 5},
        }
        made = make_single(folder / "data", settings)
        made.environments["all"] = {VARIABLE: str(points)}
        with running(made):
            yield Site(made, plain, points)


@pytest.mark.parametrize(
    "points",
    [
        (POINTS[0],),
        *(pytest.param((point,), marks=pytest.mark.long) for point in POINTS[1:]),
        # The successor dies as well.
        pytest.param((POINTS[0], AGAIN), marks=pytest.mark.long),
    ],
)
def test_a_run_outlives_kill_9(site: Site, points: tuple[str, ...]) -> None:
    session = site.post("create_session", {})["session_id"]
    new = {"session_id": session, "model_seq_id": 0, "base_model": "toy"}
    run = site.result(site.post("create_model", new))["model_id"]

    def step(number: int) -> Any:
        body = {"model_id": run, "seq_id": number, "adam_params": {"learning_rate": 1e-4}}
        return site.post("optim_step", body)

    # Between two states that are saved by themselves.
    for number in range(1, STEPS - 3):
        site.result(step(number))
    for point in points:
        (site.points / point).touch()
    # What was not answered is asked again.
    with contextlib.suppress(httpx.TransportError):
        step(STEPS - 3)
    for point in points:
        site.recover(point)
    found = [site.result(step(number)) for number in range(STEPS - 3, STEPS + 1)]
    assert [one["metrics"]["step:max"] for one in found] == list(range(STEPS - 3, STEPS + 1))
    assert all(site.result(step(number))["metrics"]["step:max"] == number for number in (1, STEPS))


def test_usage_is_told_once_though_its_teller_dies(site: Site) -> None:
    session = site.post("create_session", {})["session_id"]
    new = {"session_id": session, "model_seq_id": 0, "base_model": "toy"}
    run = site.result(site.post("create_model", new))["model_id"]
    (site.points / TOLD).touch()
    body = {"model_id": run, "seq_id": 1, "adam_params": {"learning_rate": 1e-4}}
    with contextlib.suppress(httpx.TransportError):
        site.post("optim_step", body)
    site.recover(TOLD)
    assert site.result(site.post("optim_step", body))["metrics"]["step:max"] == 1
    with psycopg.connect(site.url, autocommit=True) as connection:

        def left() -> list[Any]:
            return connection.execute("SELECT id FROM tuning_owed_usage").fetchall()

        wait_until(lambda: not left(), "usage to be told")
        found = connection.execute(
            "SELECT count(*) FROM usage_records u JOIN tuning_operations o ON o.id = u.id"
            " WHERE o.run_id = %s",
            (run,),
        ).fetchone()
    assert found == (1,)


def test_every_point_has_a_case() -> None:
    named = {point for point in named_points() if point.startswith("tuning.")}
    assert named == {*POINTS, AGAIN, TOLD}
