"""State of an attempt whose end the cluster shows piece by piece."""

import json
from dataclasses import replace

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.attempt_state import AttemptState
from windlass_agent.executors.kubernetes.observe.snapshot import (
    AttemptSnapshot,
    Container,
    Key,
    PodSnapshot,
    RootObject,
)
from windlass_agent.executors.kubernetes.settings import Patience
from windlass_agent.kueue.workload import Condition

KEY = Key("ftjob-1", 1)
FAILED = Condition(status=True, reason="BackoffLimitExceeded", message="", at="")
EVICTING = Condition(status=True, reason="EvictionByEvictionAPI", message="Evicting.", at="")
UNSCHEDULED = Condition(
    status=False, reason="Unschedulable", message="1 node(s) were unschedulable", at=""
)
ROOT = RootObject(
    kind="Job", key=KEY, job_id="ftjob-1", generation=1, namespace="team", name="ftjob-1-1",
    uid="u1", queue="", deleting=False, suspended=False, conditions={},
)  # fmt: skip
POD = PodSnapshot(
    key=KEY, job_id="ftjob-1", rank=0, namespace="team", name="ftjob-1-1-0", uid="p1",
    service_account="windlass-runner", node="node-1", phase="Running", reason="", message="",
    deleting=False, scheduled=None, disruption=None, runner=Container(state="running"),
    blocked=None,
)  # fmt: skip
RUNNING = AttemptSnapshot(root=ROOT, pods=(POD,))
FAILING = replace(ROOT, conditions={"FailureTarget": FAILED})


class Look:
    """An attempt that is shown one snapshot after another, a second apart."""

    def __init__(self) -> None:
        patience = Patience(setup=5, start=5, schedule=5)
        self.attempt = AttemptState(KEY, job_id="ftjob-1", patience=patience)
        self.clock = 0.0

    def at(self, snapshot: AttemptSnapshot, *, after: float = 1.0) -> pb.WorkloadStatus:
        self.clock += after
        self.attempt.see(snapshot, clock=self.clock, now_ms=1)
        return self.attempt.status()

    def end(self) -> pb.WorkloadStatus:
        assert self.attempt.over
        self.attempt.ended = self.attempt.verdict
        return self.attempt.status()


def ended(outcome: str, *, reason: str = "", message: str = "") -> AttemptSnapshot:
    """The pod ended, and its runner left a word."""
    runner = Container(state="terminated", exit_code=143, message=json.dumps({"outcome": outcome}))
    pod = replace(POD, phase="Failed", reason=reason, message=message, runner=runner)
    return AttemptSnapshot(root=replace(FAILING, conditions={"Failed": FAILED}), pods=(pod,))


@pytest.mark.parametrize(
    ("outcome", "phase"), [("stopped", pb.PHASE_STOPPED), ("succeeded", pb.PHASE_SUCCEEDED)]
)
def test_a_drained_runner_says_how_it_took_it(outcome: str, phase: int) -> None:
    look = Look()
    assert look.at(RUNNING).phase == pb.PHASE_RUNNING
    # Its Job has failed as soon as its pod is asked to go; it may yet save, or be done.
    pod = replace(POD, deleting=True, disruption=EVICTING)
    status = look.at(AttemptSnapshot(root=FAILING, pods=(pod,)))
    assert (status.phase, status.reason) == (pb.PHASE_STOPPING, "Evicted")
    look.at(ended(outcome))
    assert look.end().phase == phase


def test_a_runner_that_was_stopped_for_its_disk_is_not_begun_again() -> None:
    look = Look()
    look.at(RUNNING)
    message = 'Usage of EmptyDir volume "work" exceeds the limit "20Gi". '
    look.at(ended("stopped", reason="Evicted", message=message))
    status = look.end()
    assert (status.phase, status.reason) == (pb.PHASE_FAILED, "StorageExceeded")


def test_no_end_is_told_while_something_may_run() -> None:
    look = Look()
    conditions = {"Failed": replace(FAILED, reason="DeadlineExceeded")}
    ending = AttemptSnapshot(
        root=replace(ROOT, conditions=conditions), pods=(replace(POD, deleting=True),)
    )
    assert look.at(ending).phase == pb.PHASE_STOPPING
    assert not look.attempt.over
    look.at(replace(ending, pods=()))
    assert look.end().reason == "DeadlineExceeded"


def test_a_success_whose_pod_seems_to_run_is_not_cut_short() -> None:
    """Job and pod are watched apart: whoever deletes the Job now loses log and last word."""
    look = Look()
    complete = replace(FAILED, reason="CompletionsReached")
    root = replace(ROOT, conditions={"Complete": complete})
    look.at(AttemptSnapshot(root=root, pods=(POD,)))
    assert not look.attempt.is_to_end
    assert not look.attempt.over
    runner = Container(state="terminated", message=json.dumps({"outcome": "succeeded"}))
    look.at(AttemptSnapshot(root=root, pods=(replace(POD, phase="Succeeded", runner=runner),)))
    assert look.end().phase == pb.PHASE_SUCCEEDED
    assert look.attempt.exit is not None


def test_patience_begins_with_what_needs_it() -> None:
    """A wait for a cordoned node starts anew when the node comes back in vain."""
    look = Look()
    pod = replace(POD, phase="Pending", node="", runner=None, scheduled=UNSCHEDULED)
    waiting = AttemptSnapshot(root=ROOT, pods=(pod,))
    assert look.at(replace(waiting, short=True)).reason == "Unschedulable"
    assert look.at(replace(waiting, short=True), after=100).phase == pb.PHASE_PENDING
    assert look.at(waiting, after=100).phase == pb.PHASE_PENDING
    assert look.at(waiting, after=4).phase == pb.PHASE_PENDING
    look.at(waiting, after=2)
    assert look.attempt.verdict is not None
    assert look.attempt.verdict.failed
