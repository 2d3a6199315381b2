"""An agent of the release before, from its wheel, under the server of today."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.lone_agent import LoneAgent
from tests.faults.site import STEPS_PER_EPOCH, Site
from tests.support.environments import postgres, release_env
from tests.support.processes.windlass import make_single, running

pytestmark = [pytest.mark.faults, pytest.mark.torch]


@pytest.fixture(scope="module")
def agent(base_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneAgent]:
    python = release_env.environment(tmp_path_factory.mktemp("release") / "env")
    with postgres.reachable_folder() as folder:
        made = make_single(folder / "data", {"agent": {"enabled": False}})
        with running(made):
            agent = LoneAgent(Site(made), name="elder", python=str(python))
            agent.site.import_base(base_folder)
            agent.start()
            yield agent
            agent.stop()
            agent.site.assert_no_process()


def test_it_enrols_trains_and_reports(agent: LoneAgent) -> None:
    site = agent.site
    job_id = site.create(site.upload(), epochs=2)
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 1
    assert site.steps(job_id) == list(range(1, 2 * STEPS_PER_EPOCH + 1))
    assert site.checkpoints(job_id) == [2 * STEPS_PER_EPOCH, STEPS_PER_EPOCH]
    # The wheel's own code did it: what it does not know, nobody asked it for.
    with site.windlass.openai() as client:
        answer = client.chat.completions.create(
            model=job["fine_tuned_model"],
            messages=[{"role": "user", "content": "Hello"}],
            max_completion_tokens=4,
        )
    assert answer.choices[0].message.content is not None
