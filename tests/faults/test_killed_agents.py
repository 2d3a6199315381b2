"""kill -9 of a standalone agent, of its runner and of its trainer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.lone_agent import LoneAgent
from tests.faults.site import STEPS_PER_EPOCH, Site, frozen, kill
from tests.support.environments import postgres
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.torch]


@pytest.fixture(scope="module")
def agent(base_folder: Path) -> Iterator[LoneAgent]:
    """An installation whose only agent is a process of its own."""
    with postgres.reachable_folder() as folder:
        made = make_single(folder / "data", {"agent": {"enabled": False}})
        with running(made):
            agent = LoneAgent(Site(made))
            agent.site.import_base(base_folder)
            agent.start()
            yield agent
            agent.stop()
            agent.site.assert_no_process()


@pytest.fixture(scope="module")
def file_id(agent: LoneAgent) -> str:
    return agent.site.upload()


def test_a_job_survives_its_agent(agent: LoneAgent, file_id: str) -> None:
    site = agent.site
    job_id = site.create(file_id)
    site.until_trained(job_id)
    with frozen(site.trainer(job_id)):
        agent.kill()
        agent.start()
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 1
    assert site.steps(job_id) == list(range(1, 4 * STEPS_PER_EPOCH + 1))


@pytest.mark.long
def test_a_job_whose_runners_die_goes_on_from_its_checkpoint(
    agent: LoneAgent, file_id: str
) -> None:
    site = agent.site
    job_id = site.create(file_id)
    site.until_checkpoint(job_id)
    # The runner alone at first; its trainer must not outlive it.
    kill(site.runner(job_id))
    wait_until(lambda: site.job(job_id)["windlass"]["attempt"] == 2, "another attempt")
    with frozen(site.trainer(job_id)):
        agent.kill()
        kill(site.runner(job_id))
    site.assert_no_process(job_id)
    agent.start()
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 3
    steps = site.steps(job_id)
    assert steps[-1] == 4 * STEPS_PER_EPOCH
    assert set(steps) == set(range(1, 4 * STEPS_PER_EPOCH + 1))


def test_a_job_whose_trainer_is_killed_from_outside_is_tried_again(
    agent: LoneAgent, file_id: str
) -> None:
    site = agent.site
    job_id = site.create(file_id, epochs=1)
    site.until_trained(job_id)
    kill(site.trainer(job_id))
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 2
    said = [event["message"] for event in site.events(job_id) if event["level"] == "warn"]
    assert any("killed from outside" in message for message in said)
