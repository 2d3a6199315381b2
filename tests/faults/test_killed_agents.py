"""kill -9 of a standalone agent, of its runner and of its trainer."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.site import STEPS_PER_EPOCH, Site, frozen, kill, until
from tests.servers import postgres
from tests.servers.windlass import make_single, running

from windlass.core.app import runtime_dir

pytestmark = [pytest.mark.faults, pytest.mark.torch]


@dataclass
class Agent:
    """`windlass-agent` beside a server that has none; its data lie in the server's folder."""

    site: Site
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def data(self) -> Path:
        return self.site.windlass.data / "standalone"

    def start(self) -> None:
        socket = runtime_dir(self.site.windlass.data) / "windlass.sock"
        key = self.site.windlass.data / "registration.key"
        if not key.exists():
            with self.site.windlass.http() as http:
                answer = http.post("/v1/clusters", json={"name": "machine-room"})
            key.write_text(answer.json()["registration_key"])
        command = [
            *(sys.executable, "-m", "windlass_agent", "--executor", "process"),
            *("--control-plane", f"unix:{socket}", "--data", str(self.data)),
            *("--registration-key-file", str(key), "--stop-jobs-on-exit"),
        ]
        with (self.site.windlass.data / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "HF_HUB_OFFLINE": "1"}
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="module")
def agent(base_folder: Path) -> Iterator[Agent]:
    """An installation whose only agent is a process of its own."""
    with postgres.reachable_folder() as folder:
        made = make_single(folder / "data", {"agent": {"enabled": False}})
        with running(made):
            agent = Agent(Site(made))
            agent.site.import_base(base_folder)
            agent.start()
            yield agent
            agent.stop()
            agent.site.assert_no_process()


@pytest.fixture(scope="module")
def file_id(agent: Agent) -> str:
    return agent.site.upload()


def test_a_job_survives_its_agent(agent: Agent, file_id: str) -> None:
    site = agent.site
    job_id = site.create(file_id)
    site.until_trained(job_id)
    with frozen(site.trainer(job_id)):
        agent.kill()
        agent.start()
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 1
    assert site.steps(job_id) == list(range(1, 4 * STEPS_PER_EPOCH + 1))


def test_a_job_whose_runners_die_goes_on_from_its_checkpoint(agent: Agent, file_id: str) -> None:
    site = agent.site
    job_id = site.create(file_id)
    site.until_checkpoint(job_id)
    # The runner alone at first; its trainer must not outlive it.
    kill(site.runner(job_id))
    until(lambda: site.job(job_id)["windlass"]["attempt"] == 2, what="another attempt")
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


def test_a_killed_trainer_fails_its_job_with_a_reason(agent: Agent, file_id: str) -> None:
    site = agent.site
    job_id = site.create(file_id)
    site.until_trained(job_id)
    kill(site.trainer(job_id))
    job = site.assert_failed_once(job_id)
    assert job["error"]["code"] == "out_of_memory"
    assert job["windlass"]["attempt"] == 1
