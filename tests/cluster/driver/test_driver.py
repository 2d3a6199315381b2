"""Jobs through the agent's executor: launched, followed, stopped, forgotten, adopted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.stages.driven import Driven, driven, name_of
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass_agent.kube.resources import PODS

RUNNING, STOPPED, DELETED = (
    pb.DESIRED_STATE_RUNNING,
    pb.DESIRED_STATE_STOPPED,
    pb.DESIRED_STATE_DELETED,
)


@pytest.fixture
async def world(east: TestCluster, database_url: str, tmp_path: Path) -> AsyncIterator[Driven]:
    async with driven(east, database_url, tmp_path) as made:
        yield made


async def test_a_job_runs_and_its_log_and_last_word_arrive_once(world: Driven) -> None:
    async with world.agent():
        await world.put("ftjob-one")
        await world.reach("ftjob-one", pb.PHASE_RUNNING)
        assert world.told("ftjob-one") == ["reserved", "admitted"]
        await until(lambda: world.desk.log("ftjob-one") == b"begun\n")
        world.desk.lose_answers = 3
        await world.tell("ftjob-one", "succeed")
        await world.reach("ftjob-one", pb.PHASE_SUCCEEDED)
        # What the runner did not tell is told before the status, which says less.
        (finish,) = world.desk.finished
        assert (finish.run.attempt, finish.finish.outcome) == (1, runner_pb2.OUTCOME_SUCCEEDED)
        assert finish.finish.trained_tokens == 5
        await until(lambda: world.desk.log("ftjob-one") == b"begun\nsucceed\n")
        await world.put("ftjob-one", generation=2, desired=DELETED)
        await world.reach("ftjob-one", pb.PHASE_STOPPED, generation=2)
        await world.gone("ftjob-one")


async def test_a_stop_lets_a_job_save_and_waits_for_it(world: Driven) -> None:
    async with world.agent():
        await world.put("ftjob-stop")
        await world.reach("ftjob-stop", pb.PHASE_RUNNING)
        (pod,) = await world.pods("ftjob-stop")
        await world.sh(pod, "touch /work/stubborn")
        await world.put("ftjob-stop", generation=2, desired=STOPPED)
        await world.reach("ftjob-stop", pb.PHASE_STOPPING, generation=2)
        await until(lambda: b"saving" in world.desk.log("ftjob-stop"), 30)
        assert world.statuses["ftjob-stop"].phase == pb.PHASE_STOPPING
        await world.sh(pod, "echo succeed > /work/do")
        # It was done before it had to stop, so that is what counts.
        await world.reach("ftjob-stop", pb.PHASE_SUCCEEDED, generation=2)
        await world.gone("ftjob-stop")
        assert world.desk.log("ftjob-stop") == b"begun\nsaving\nsucceed\n"


async def test_another_attempt_begins_when_nothing_of_the_one_before_is_left(
    world: Driven,
) -> None:
    async with world.agent():
        await world.put("ftjob-two")
        await world.reach("ftjob-two", pb.PHASE_RUNNING)
        await world.put("ftjob-two", generation=2, attempt=2)
        await world.reach("ftjob-two", pb.PHASE_RUNNING, generation=2)
        assert [pod["metadata"]["labels"]["windlass.dev/attempt"]
                for pod in await world.objects(PODS, "ftjob-two")] == ["2"]  # fmt: skip
        assert world.desk.log("ftjob-two", 1).startswith(b"begun\n")
        await world.put("ftjob-two", generation=3, desired=DELETED)
        await world.gone("ftjob-two")


async def test_quota_lets_jobs_wait_with_kueues_words_and_their_place(world: Driven) -> None:
    """Full means queued, and no more."""
    names = [f"ftjob-{letter}" for letter in "abcd"]
    async with world.agent():
        for name in names[:2]:
            await world.put(name)
            await world.reach(name, pb.PHASE_RUNNING)
        for place, name in enumerate(names[2:], 1):
            await world.put(name)
            await world.reach(name, pb.PHASE_PENDING, reason="Queued")
            await world.queued(name, place)
        status = world.statuses["ftjob-d"]
        assert "insufficient unused quota for memory" in status.message
        assert status.queue == world.queue
        assert world.told("ftjob-d") == ["queued"]
        await world.tell("ftjob-a", "succeed")
        await world.reach("ftjob-c", pb.PHASE_RUNNING)
        assert world.told("ftjob-c") == ["queued", "reserved", "admitted"]
        await until(lambda: world.statuses["ftjob-d"].queue_position == 1, 30)
        # Cancelled while it waits.
        await world.put("ftjob-d", generation=2, desired=DELETED)
        await world.reach("ftjob-d", pb.PHASE_STOPPED, generation=2)
        await world.gone("ftjob-d")


async def test_a_second_life_takes_over_and_loses_nothing(world: Driven) -> None:
    async with world.agent():
        await world.put("ftjob-live")
        await world.put("ftjob-done")
        await world.reach_all(pb.PHASE_RUNNING, "ftjob-live", "ftjob-done")
        await until(lambda: world.desk.log("ftjob-live") and world.desk.log("ftjob-done"))
    await world.tell("ftjob-done", "succeed")
    await world.tell("ftjob-live", "chat 2000")
    async with world.agent():
        await world.reach("ftjob-done", pb.PHASE_SUCCEEDED)
        await world.reach("ftjob-live", pb.PHASE_RUNNING)
        expected = b"begun\nchat 2000\n" + b"".join(
            f"line {number} ".encode() + b"." * 80 + b"\n" for number in range(2000)
        )
        await until(lambda: world.desk.log("ftjob-live") == expected, 30)
        assert world.desk.log("ftjob-done") == b"begun\nsucceed\n"
        assert len(await world.pods("ftjob-live")) == 1


async def test_what_nobody_wants_any_more_is_deleted_at_the_next_start(world: Driven) -> None:
    async with world.agent():
        await world.put("ftjob-orphan")
        await world.reach("ftjob-orphan", pb.PHASE_RUNNING)
    await world.forget("ftjob-orphan")
    async with world.agent():
        await world.gone("ftjob-orphan")


async def test_another_control_planes_jobs_are_left_alone(world: Driven) -> None:
    """Two may share a cluster: what is not labelled as ours is not ours."""
    theirs = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "theirs-1",
            "namespace": world.namespace,
            "labels": {"windlass.dev/cluster": "cluster-other", "windlass.dev/workload": "theirs",
                       "windlass.dev/attempt": "1", "windlass.dev/job": "theirs"},
        },
        "spec": {"suspend": True, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "node", "image": world.cluster.image}]}}},
    }  # fmt: skip
    world.cluster.apply(theirs)
    async with world.agent():
        await world.put("ftjob-ours")
        await world.reach("ftjob-ours", pb.PHASE_RUNNING)
        assert world.cluster.works("get", "job", "theirs-1", "-n", world.namespace)


async def test_a_job_deleted_behind_our_back_counts_as_stopped(world: Driven) -> None:
    """Its runner says so; jobs will place it anew."""
    async with world.agent():
        await world.put("ftjob-gone")
        await world.reach("ftjob-gone", pb.PHASE_RUNNING)
        await until(lambda: world.desk.log("ftjob-gone"))
        world.cluster.kubectl("delete", "job", name_of("ftjob-gone"), "-n", world.namespace)
        await world.reach("ftjob-gone", pb.PHASE_STOPPED)
        (finish,) = world.desk.finished
        assert finish.finish.outcome == runner_pb2.OUTCOME_STOPPED
        assert world.desk.log("ftjob-gone") == b"begun\nsaving\n"
