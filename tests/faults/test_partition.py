"""A cluster that nobody reaches any more: its job goes on elsewhere, once, also when it is back.

The line of its agent is cut, both ways. URLs of the object store stay good, which is the
harder case: what a stale attempt puts there must be of no use to anybody.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.lone_agent import LoneAgent
from tests.faults.site import STEPS_PER_EPOCH, TRAINER, Site, frozen
from tests.support.environments import postgres
from tests.support.processes.cut_line import CutLine, cut_line
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.torch]
EPOCHS = 4


@dataclass
class Split:
    """A server, a cluster behind a line, and room for a second one."""

    site: Site
    line: CutLine
    far: LoneAgent
    near: LoneAgent

    def begin(self) -> str:
        """A job with a checkpoint, in the far cluster; the near one is there afterwards."""
        self.far.start()
        job_id = self.site.create(self.site.upload(), epochs=EPOCHS)
        self.site.until_checkpoint(job_id)
        return job_id

    def until_moved(self, job_id: str) -> None:
        wait_until(lambda: self.site.job(job_id)["windlass"]["attempt"] == 2, "another attempt")

    def assert_moved_once(self, job_id: str) -> None:
        """It ended well in the near cluster, and nothing of the far attempt is left or counts."""
        job = self.site.assert_succeeded_once(job_id)
        assert job["windlass"]["attempt"] == 2
        clusters = {one["id"]: one["name"] for one in self.site.get("/clusters")["data"]}
        assert clusters[job["windlass"]["cluster"]] == self.near.name
        steps = self.site.steps(job_id)
        assert set(steps) == set(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
        self.site.assert_no_process()


@contextmanager
def split(base: Path, settings: dict[str, dict[str, int]]) -> Iterator[Split]:
    with postgres.reachable_folder() as folder, ExitStack() as stack:
        windlass = make_single(folder / "data", {"agent": {"enabled": False}, **settings})
        stack.enter_context(running(windlass))
        site = Site(windlass)
        site.import_base(base)
        near = LoneAgent(site, "near")
        line = stack.enter_context(cut_line(near.socket))
        far = LoneAgent(site, "far", line.address)
        yield Split(site, line, far, near)
        line.mend()
        for agent in (far, near):
            agent.stop()


def test_an_agent_without_contact_lets_go_before_its_job_goes_on_elsewhere(
    base_folder: Path,
) -> None:
    with split(base_folder, {"agents": {"process_suspend_seconds": 6}}) as world:
        site, job_id = world.site, world.begin()
        with frozen(site.trainer(job_id)):
            world.line.cut()
            # By its own clock alone: nobody could have told it.
            site.assert_no_process(job_id)
        assert site.job(job_id)["windlass"]["attempt"] == 1
        world.near.start()
        world.until_moved(job_id)
        world.line.mend()
        world.assert_moved_once(job_id)


@pytest.mark.long
def test_whatever_a_stale_attempt_still_does_is_refused(base_folder: Path) -> None:
    """The far agent is not told to let go, so that its attempt trains on to its end."""
    with split(base_folder, {"jobs": {"agent_lost_seconds": 2}}) as world:
        site, job_id = world.site, world.begin()
        stale = site.runner(job_id)
        world.line.cut()
        with frozen(site.trainer(job_id)):
            wait_until(lambda: site.job(job_id)["windlass"]["cluster"] is None, "the loss")
        # It has time to end, and to want to say so, before it is heard again.
        wait_until(lambda: not site.processes(job_id, TRAINER), "the end of the training")
        assert stale.is_running()
        world.near.start()
        world.until_moved(job_id)
        world.line.mend()
        world.assert_moved_once(job_id)
