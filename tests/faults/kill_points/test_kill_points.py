"""kill -9 at each named point of a job's life: it succeeds once, whatever was half done.

The trainer trains nothing and takes milliseconds (`instant`); server, agent and runner are the
product's own processes.
"""

from collections.abc import Iterator

import pytest
from tests.faults.kill_points.killable import EPOCHS, STEPS, Killable, killable
from tests.faults.kill_points.points import named_points
from tests.support.environments import postgres
from tests.support.fakes.webhook_receiver import ALLOWED, receiving
from tests.support.waiting import wait_until

from windlass.jobs.domain.job import EffectKind

pytestmark = [pytest.mark.faults]

# Where a point leaves the attempt alone, and where another one has to take over.
SAME_ATTEMPT = (
    "files.uploaded",
    "files.committed",
    "jobs.created",
    "jobs.placed",
    "clusters.workload_stored",
    "jobs.statuses_applied",
    "jobs.reported",
    "jobs.artifact_complete",
    "jobs.artifact_committed",
    "jobs.finished",
    "usage.written",
    "agent.claimed",
    "agent.recorded",
    "agent.runner_started",
    "agent.finish_relayed",
    "agent.runner_ended",
    "agent.result_told",
    "agent.end_recorded",
    "agent.delivered",
    "runner.exit_left",
    "runner.finish_told",
)
NEXT_ATTEMPT = (
    "runner.checkpoint_saved",
    "runner.artifact_uploaded",
    "runner.checkpoint_uploaded",
    "runner.trained",
    "runner.published",
)
DELIVERED = "jobs.delivered."
SENT = "jobs.webhook_sent"
# Merged weights are made by torch; they are registered in the way of the model itself.
DELIVERIES = tuple(
    DELIVERED + kind for kind in EffectKind if kind is not EffectKind.REGISTER_MERGED
)
# Of each process the beginning, the middle and the end of its part are enough for a short run.
SHORT = {
    "jobs.created",
    "jobs.placed",
    "jobs.finished",
    "agent.recorded",
    "agent.runner_started",
    "agent.delivered",
    "runner.exit_left",
    "runner.checkpoint_saved",
    "runner.published",
}
# One delivery is as another; the server that they kill is the same.
POINTS = (
    *(
        pytest.param(point, marks=() if point in SHORT else pytest.mark.long)
        for point in (*SAME_ATTEMPT, *NEXT_ATTEMPT)
    ),
    DELIVERIES[0],
    *(pytest.param(point, marks=pytest.mark.long) for point in DELIVERIES[1:]),
)


@pytest.fixture(scope="module")
def installation(postgres_url: str, schema_template: str) -> Iterator[Killable]:
    with (
        postgres.reachable_folder() as folder,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
        killable(folder, url.replace("+psycopg", ""), webhooks=ALLOWED) as made,
    ):
        yield made


@pytest.mark.parametrize("point", POINTS)
def test_a_job_succeeds_once(installation: Killable, point: str) -> None:
    site = installation.site
    died = {"agent": ["agent"], "runner": []}.get(point.partition(".")[0], ["server"])
    with installation.killed_at(point):
        job_id = installation.create(installation.upload(), key=point)
        job = site.assert_succeeded_once(job_id)
        # An agent that has told of the end may reach the point when all have heard of it.
        wait_until(lambda: installation.restarts == died, f"{point} kills {died}")
    assert job["windlass"]["attempt"] == (2 if point in NEXT_ATTEMPT else 1)
    steps = site.steps(job_id)
    assert set(steps) == set(range(1, EPOCHS * STEPS + 1))
    if point in SAME_ATTEMPT:
        assert len(steps) == len(set(steps))
    assert site.checkpoints(job_id) == [STEPS * epoch for epoch in range(EPOCHS, 0, -1)]
    assert job["finished_at"] >= job["created_at"]


def test_a_webhook_that_may_have_heard_is_told_the_same_again(installation: Killable) -> None:
    http = installation.site.http
    with receiving() as receiver:
        made = http.post("/v1/webhook_endpoints", json={"url": receiver.url}).json()
        with installation.killed_at(SENT):
            job_id = installation.create(installation.upload(), key=SENT)
            installation.site.assert_succeeded_once(job_id)
        wait_until(lambda: len(receiver.requests) == 2, "another delivery")
        events = receiver.unwrapped(made["signing_secret"])
        assert http.delete(f"/v1/webhook_endpoints/{made['id']}").status_code == 200
    assert len(set(receiver.ids)) == 1
    assert {(one.type, one.data.id) for one in events} == {("fine_tuning.job.succeeded", job_id)}


def test_every_point_has_a_case() -> None:
    """Those of the tunnel have theirs in `tests/faults/tunnel`, those of erasures in
    `tests/faults/test_erasures_killed.py`, of exports beside it, those of the audit log in
    `tests/integration/tenancy/audit`, those of versions of weights in
    `tests/integration/tuning/publishing`, those of keys in other tests.
    """
    others = (
        "tunnel.", "keyring.", "secrets.", "object_keys.", "erasures.", "exports.", "rbac.audit_",
        "tuning.", "versions.",
    )  # fmt: skip
    named = {point for point in named_points() if not point.startswith(others)}
    assert named == {*SAME_ATTEMPT, *NEXT_ATTEMPT, DELIVERED, SENT}
    assert named > SHORT
