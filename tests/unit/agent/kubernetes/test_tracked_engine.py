"""One engine in a cluster: what is due, what is told, and what it comes to."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass_agent.executors.kubernetes.engines.observed import EngineRoot, EngineSnapshot
from windlass_agent.executors.kubernetes.engines.tracked import Due, TrackedEngine
from windlass_agent.executors.kubernetes.observe.diagnosis import waits
from windlass_agent.executors.kubernetes.observe.snapshot import Container, Key, PodSnapshot
from windlass_agent.executors.kubernetes.render.engine_plan import digest
from windlass_agent.executors.kubernetes.settings import Patience
from windlass_agent.kube.resources import DEPLOYMENTS
from windlass_agent.kueue.workload import Condition, Workload

PATIENCE = Patience(setup=10, start=10, schedule=10)
SERVES = keeper_pb2.EngineState(phase=pb.PHASE_RUNNING)
LOADS = keeper_pb2.EngineState(phase=pb.PHASE_STARTING, reason="Loading")
RUNNING, DELETED = pb.DESIRED_STATE_RUNNING, pb.DESIRED_STATE_DELETED
POD = PodSnapshot(
    key=Key("eng-1", 0), job_id="", rank=0, namespace="team-a", name="p-1", uid="u-1",
    service_account="windlass-runner", node="n", phase="Running", reason="", message="",
    deleting=False, scheduled=None, disruption=None, runner=Container(state="running"),
    blocked=None, memory_limit="2Gi", address="10.0.0.7",
)  # fmt: skip


def workload(generation: int = 1, desired: Any = RUNNING, **engine: Any) -> pb.Workload:
    return pb.Workload(
        id="eng-1", generation=generation, desired=desired,
        placement=pb.Placement(namespace="team-a", queue="main"),
        engine=pb.EngineWorkload(**{"engine": "builtin", "model": "m"} | engine),
    )  # fmt: skip


def deployment(made: pb.Workload, **changes: Any) -> EngineRoot:
    known = EngineRoot(
        resource=DEPLOYMENTS, workload=made.id, project="", namespace="team-a",
        name="windlass-engine-eng-1", uid="d-1",
        generation=made.generation, digest=digest(made), queue="main", deleting=False, refusal="",
    )  # fmt: skip
    return replace(known, **changes)


def admitted(*, yes: bool = True, said: str = "No room.") -> Workload:
    condition = Condition(status=yes, reason="Pending", message=said, at="")
    kinds = ("QuotaReserved", "Admitted") if yes else ("QuotaReserved",)
    return Workload(
        namespace="team-a", name="w", uid="w-1", owner="u-1", queue="main", priority=0,
        priority_class="", active=True, conditions=dict.fromkeys(kinds, condition),
        cluster_queue="q", flavors={}, requeues=0,
    )  # fmt: skip


def shown(made: pb.Workload, *pods: PodSnapshot, **changes: Any) -> EngineSnapshot:
    known = EngineSnapshot(root=deployment(made), pods=pods, admission=admitted())
    return replace(known, **changes)


def told(made: pb.Workload) -> TrackedEngine:
    engine = TrackedEngine(made)
    engine.want(made)
    return engine


def see(
    engine: TrackedEngine,
    snapshot: EngineSnapshot,
    state: Any = None,
    at: float = 0,
    gpu: float | None = None,
) -> None:
    engine.see(snapshot, state, clock=at, patience=PATIENCE, gpu=gpu)


def test_a_prefetch_has_succeeded_once_its_keeper_says_that_the_files_are_there() -> None:
    made = workload()
    made.prefetch.CopyFrom(pb.PrefetchWorkload(model="m", model_version_id="mv-1"))
    tracked = told(made)
    assert tracked.due(0) is Due.APPLY
    without_quota = {"admission": None, "root": deployment(made, queue="")}
    see(tracked, shown(made, POD, **without_quota), LOADS)
    assert tracked.status().phase == pb.PHASE_STARTING
    assert not tracked.has_weights
    see(tracked, shown(made, POD, **without_quota), SERVES)
    status = tracked.status()
    assert tracked.has_weights
    assert (status.phase, status.endpoint, tracked.serves) == (pb.PHASE_SUCCEEDED, "", False)
    assert tracked.due(0) is Due.NOTHING
    tracked.want(pb.Workload(id="eng-1", generation=2, desired=DELETED))
    assert tracked.due(0) is Due.DELETE


def test_it_is_made_once_and_serves_by_the_keepers_word() -> None:
    engine = told(workload())
    assert engine.due(0) is Due.APPLY
    engine.made_at = 1.0
    assert engine.due(2) is Due.NOTHING, "the cluster has yet to show it"
    assert engine.due(20) is Due.APPLY, "somebody has removed it at once"
    see(engine, shown(workload(), POD))
    assert (engine.due(20), engine.status().phase) == (Due.NOTHING, pb.PHASE_STARTING)
    see(engine, shown(workload(), POD), SERVES)
    status = engine.status()
    assert (status.phase, status.endpoint) == (pb.PHASE_RUNNING, "pod://team-a/p-1")


@pytest.mark.parametrize(
    ("snapshot", "phase", "reason"),
    [
        (shown(workload()), pb.PHASE_PENDING, "Launching"),
        (
            shown(workload(), replace(POD, node=""), admission=admitted(yes=False)),
            pb.PHASE_PENDING,
            "Queued",
        ),
        (shown(workload(), replace(POD, node=""), admission=None), pb.PHASE_PENDING, "Queued"),
        (
            shown(
                workload(), replace(POD, runner=Container(state="waiting", reason="ErrImagePull"))
            ),
            pb.PHASE_STARTING,
            "ImagePullFailed",
        ),
        (
            shown(workload(), root=deployment(workload(), refusal="x violates PodSecurity")),
            pb.PHASE_STARTING,
            "PodSecurity",
        ),
    ],
)
def test_waiting_says_why(snapshot: EngineSnapshot, phase: int, reason: str) -> None:
    engine = told(workload())
    see(engine, snapshot)
    assert (engine.status().phase, engine.status().reason) == (phase, reason)


@pytest.mark.parametrize(
    ("last", "reason", "words"),
    [
        (Container(state="terminated", exit_code=1, message="Error: somebody's secret"),
         "ProcessExited",
         "The engine ended with code 1; the operator finds its log with kubectl logs --previous."),
        (Container(state="terminated", reason="StartError", exit_code=128, message='exec: "x"'),
         "ProcessExited", "The engine's container could not be started: exec: \"x\"."),
        (Container(state="terminated", reason="OOMKilled", exit_code=137), "OutOfMemory",
         "more memory than the 2 GiB that it may use. Lower kv_cache_bytes"),
    ],
)  # fmt: skip
def test_an_engine_that_ends_again_and_again_has_failed(
    last: Container, reason: str, words: str
) -> None:
    engine = told(workload())
    once = replace(POD, restarts=1, last_end=last)
    see(engine, shown(workload(), POD), LOADS)
    see(engine, shown(workload(), once), LOADS)
    assert engine.failure is None
    twice = shown(workload(), replace(once, restarts=2))
    see(engine, twice, None)
    assert engine.failure is None, "its keeper has said nothing"
    see(engine, twice, LOADS)
    status = engine.status()
    assert (status.phase, status.reason) == (pb.PHASE_FAILED, reason)
    assert words in status.message
    assert "secret" not in status.message, "nothing of a log, whatever the pod has of it"
    assert engine.due(0) is Due.DELETE, "it holds no quota"
    engine.want(workload(generation=2))
    assert engine.failure is None


BEYOND = "insufficient quota for memory in flavor {}, request > maximum capacity (3Gi > 2Gi)"
FULL = "insufficient unused quota for memory in flavor {}, 1Gi more needed"


def test_one_that_serves_is_not_judged_by_what_was_long_ago() -> None:
    last = Container(state="terminated", exit_code=1, message="Error: no file")
    old = shown(workload(), replace(POD, restarts=5, last_end=last))
    # The agent has begun anew, and hears the keeper a little later.
    engine = TrackedEngine(workload())
    see(engine, old, None)
    engine.want(workload())
    see(engine, old, LOADS)
    assert (engine.failure, engine.due(0)) == (None, Due.NOTHING)
    see(engine, old, SERVES)
    assert engine.serves
    # It ends once more, and a second time only after it has served.
    for restarts in (6, 7):
        see(engine, shown(workload(), replace(POD, restarts=restarts, last_end=last)), LOADS)
        assert engine.failure is None
        see(engine, shown(workload(), replace(POD, restarts=restarts, last_end=last)), SERVES)


def test_weights_that_do_not_come_are_waited_for_a_while() -> None:
    said = "x could not be downloaded"
    failed = keeper_pb2.EngineState(phase=pb.PHASE_FAILED, reason="DownloadFailed", message=said)
    engine = told(workload())
    see(engine, shown(workload(), POD), failed)
    assert (engine.status().phase, engine.status().message) == (pb.PHASE_STARTING, said)
    see(engine, shown(workload(), POD), failed, at=PATIENCE.start)
    assert (engine.status().phase, engine.due(99)) == (pb.PHASE_FAILED, Due.DELETE)


def test_a_call_that_nobody_answered_may_have_made_it() -> None:
    engine = told(workload())
    engine.may_exist = True
    engine.want(workload(generation=2, desired=DELETED))
    assert not engine.is_gone
    assert engine.due(0) is Due.DELETE


def test_a_delete_is_not_repeated_while_the_cluster_still_shows_it() -> None:
    engine = told(workload())
    see(engine, shown(workload(), POD), SERVES)
    engine.want(workload(generation=2, desired=DELETED))
    assert engine.due(100) is Due.DELETE
    engine.deleted_at = 100
    see(engine, shown(workload(), POD), SERVES)
    assert engine.due(101) is Due.NOTHING
    assert engine.due(200) is Due.DELETE


@pytest.mark.parametrize(
    ("said", "never"),
    [
        (BEYOND.format("a"), True),
        (f"{BEYOND.format('a')}, {BEYOND.format('b')}", True),
        (f"{BEYOND.format('a')}, {FULL.format('b')}", False),
        (FULL.format("a"), False),
    ],
)
def test_what_no_quota_can_hold_fails_with_the_numbers_after_a_while(
    said: str, never: bool
) -> None:
    engine = told(workload())
    waiting = shown(workload(), replace(POD, node=""), admission=admitted(yes=False, said=said))
    see(engine, waiting)
    assert engine.status().phase == pb.PHASE_PENDING
    see(engine, waiting, at=PATIENCE.setup)
    status = engine.status()
    if never:
        assert (status.phase, status.reason) == (pb.PHASE_FAILED, "ExceedsQuota")
        assert "(3Gi > 2Gi)" in status.message
    else:
        assert (status.phase, status.reason) == (pb.PHASE_PENDING, "Queued")


def test_what_lasts_too_long_is_a_failure() -> None:
    engine = told(workload())
    engine.find(waits("QueueMissing", "No queue.", "setup"), clock=100, patience=PATIENCE)
    engine.find(waits("QueueMissing", "No queue.", "setup"), clock=109, patience=PATIENCE)
    assert engine.failure is None
    engine.find(waits("QueueMissing", "No queue.", "setup"), clock=110, patience=PATIENCE)
    assert (engine.status().phase, engine.status().reason) == (pb.PHASE_FAILED, "QueueMissing")


def test_another_argument_means_another_pod_and_another_adapter_does_not() -> None:
    engine = told(workload())
    see(engine, shown(workload(), POD), SERVES)
    engine.want(workload(generation=2, adapters=[pb.AdapterSpec(id="a", version_id="mv-a")]))
    assert engine.due(0) is Due.NOTHING
    engine.want(workload(generation=3, gpus=2))
    assert engine.due(0) is Due.DELETE
    see(engine, shown(workload(), POD, root=deployment(workload(), deleting=True)))
    assert engine.due(0) is Due.NOTHING
    see(engine, EngineSnapshot(pods=(replace(POD, deleting=True),)))
    assert engine.due(0) is Due.NOTHING, "its pod still drains"
    see(engine, EngineSnapshot())
    assert engine.due(0) is Due.APPLY


def test_an_older_wish_changes_nothing() -> None:
    engine = told(workload(generation=5))
    engine.want(workload(generation=4, desired=DELETED))
    assert engine.is_wanted


def test_one_that_nobody_has_told_of_is_left_alone() -> None:
    engine = TrackedEngine(workload())
    see(engine, shown(workload(), POD), SERVES)
    assert engine.due(0) is Due.NOTHING
    engine.want(pb.Workload(id="eng-1", generation=1, desired=DELETED))
    assert engine.due(0) is Due.DELETE


class Cluster(RuleBasedStateMachine):
    """Wishes, keepers, restarts of the agent, and a cluster that does as it is told, in time."""

    @initialize()
    def begin(self) -> None:
        self.clock, self.generation = 1.0, 1
        self.there: EngineRoot | None = None
        self.pods: tuple[PodSnapshot, ...] = ()
        self.state: keeper_pb2.EngineState | None = None
        self.made = workload()
        self.engine = told(self.made)

    @rule(desired=st.sampled_from([RUNNING, DELETED]), gpus=st.integers(0, 2))
    def wish(self, desired: Any, gpus: int) -> None:
        self.generation += 1
        self.made = workload(self.generation, desired, gpus=gpus)
        self.engine.want(self.made)

    @rule()
    def restart(self) -> None:
        self.engine = told(self.made)

    @rule()
    def work(self) -> None:
        self._look()
        match self.engine.due(self.clock):
            case Due.APPLY:
                assert not self.pods, "two pods never have its quota at once"
                self.there = deployment(self.engine.workload)
                self.engine.made_at = self.clock
            case Due.DELETE if self.there is not None:
                self.there = replace(self.there, deleting=True)
                self.engine.made_at = 0.0

    @rule(fails=st.booleans())
    def cluster_acts(self, fails: bool) -> None:
        self.clock += 1
        if self.there is not None and self.there.deleting:
            if self.pods:
                self.pods = ()
            else:
                self.there = None
        elif self.there is not None and not self.pods:
            self.pods = (POD,)
        phase = pb.PHASE_FAILED if fails else pb.PHASE_RUNNING
        self.state = keeper_pb2.EngineState(phase=phase) if self.pods else None
        self._look()

    def _look(self) -> None:
        snapshot = EngineSnapshot(root=self.there, pods=self.pods, admission=admitted())
        self.engine.see(snapshot, self.state, clock=self.clock, patience=PATIENCE)

    @invariant()
    def comes_to_what_is_wanted(self) -> None:
        if not hasattr(self, "engine"):
            return
        kept = (self.clock, self.there, self.pods, self.state)
        # A keeper that has failed is believed once more by the agent's next life.
        fails = self.state is not None and self.state.phase == pb.PHASE_FAILED
        wanted = self.engine.failure is None
        trial = told(self.made)
        trial.failure = self.engine.failure
        self.engine, trial = trial, self.engine
        for _ in range(12):
            self.work()
            self.cluster_acts(fails=False)
        phase = self.engine.status().phase
        self.engine = trial
        self.clock, self.there, self.pods, self.state = kept
        if self.made.desired != RUNNING:
            assert phase == pb.PHASE_STOPPED
        elif wanted and fails:
            assert phase in (pb.PHASE_RUNNING, pb.PHASE_FAILED)
        else:
            assert phase == (pb.PHASE_RUNNING if wanted else pb.PHASE_FAILED)


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
