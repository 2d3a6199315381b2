"""Two servers on one Postgres and one store: no job is run twice, and either may die."""

import base64
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.site import BASE, Site, frozen
from tests.support.environments import postgres
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.torch]
LOST_SECONDS = 6
MASTER_KEY = base64.b64encode(os.urandom(32)).decode()


def twin(data: Path, url: str) -> Windlass:
    """A whole server with a data folder of its own."""
    settings = NO_SPARE | {
        "database": {"url": url},
        "master_key": {"key": MASTER_KEY},
        "jobs": {"agent_lost_seconds": LOST_SECONDS},
    }
    return make_single(data, settings)


@pytest.fixture
def twins(postgres_url: str, base_folder: Path) -> Iterator[tuple[Site, Site]]:
    with postgres.reachable_folder() as folder, postgres.fresh_database(postgres_url) as url:
        one = twin(folder / "one", url)
        with running(one):
            two = twin(folder / "two", url)
            for shared in ("objects", "owner.key"):
                (two.data / shared).symlink_to(one.data / shared)
            with running(two):
                sites = Site(one), Site(two)
                sites[0].import_base(base_folder)
                yield sites


def clusters(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.get("/clusters")["data"]
    return found


def placement(site: Site, jobs: list[str]) -> Counter[str] | None:
    """The number of the jobs by cluster, once all have one."""
    placed = [site.job(job_id)["windlass"]["cluster"] for job_id in jobs]
    return Counter(placed) if all(placed) else None


def test_no_job_is_run_twice_and_the_survivor_takes_over(twins: tuple[Site, Site]) -> None:
    file_id = twins[0].upload()
    wait_until(lambda: len([c for c in clusters(twins[0]) if c["live"]]) == 2, "two agents")
    jobs = [twins[0].create(file_id, epochs=1)]
    twins[0].until_trained(jobs[0], step=1)
    (first,) = [site for site in twins if site.processes(jobs[0])]
    with frozen(first.trainer(jobs[0])):
        jobs.append(twins[1].create(file_id, epochs=1))
        wait_until(lambda: all(site.processes("--workdir") for site in twins), "both at work")
        jobs.append(twins[0].create(file_id, epochs=1))
        placed = wait_until(lambda: placement(twins[0], jobs), "a place for each")
        # Each runs a job, and one of them has another that waits.
        (busy, count), _ = placed.most_common()
        assert count == 2
        names = {cluster["id"]: cluster["name"] for cluster in clusters(twins[0])}
        dead, alive = twins if names[busy] == "local" else twins[::-1]
        dead.windlass.kill()
    ended = [alive.until_ended(job_id) for job_id in jobs]
    assert sorted(job["windlass"]["attempt"] for job in ended) == [1, 2, 2]
    assert {job["windlass"]["cluster"] for job in ended} == set(placed) - {busy}
    for job in ended:
        said = [event["message"] for event in alive.events(job["id"])]
        assert len([m for m in said if "successfully completed" in m]) == 1
        assert said.count("Getting the model and the files.") <= job["windlass"]["attempt"]
    models = [model["windlass"] for model in alive.get("/models")["data"]]
    final = [m["job_id"] for m in models if m["job_id"] and not m["is_checkpoint"]]
    assert sorted(final) == sorted(jobs)
    tokens = sum(job["trained_tokens"] for job in ended)
    wait_until(lambda: alive.usage_of(BASE)[1] == tokens, "usage", 15)
    # Back again, the other finds that its attempts are over, and ends what is left of them.
    dead.windlass.start()
    dead.windlass.wait_ready()
    dead.assert_no_process()
    assert [alive.job(job_id)["status"] for job_id in jobs] == ["succeeded"] * 3
