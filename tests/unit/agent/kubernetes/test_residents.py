"""Residents of a pod that hosts them: what it is ordered, what it may say, and of whom."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agent.kubernetes.render.test_engine import GIB
from tests.unit.agent.kubernetes.render.test_lease import COUNTED, lease
from tests.unit.agent.kubernetes.render.test_trainer_pods import trainer, with_trainers
from tests.unit.agent.kubernetes.test_tracked_engine import PATIENCE, POD, deployment, told

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass_agent.executors.kubernetes.engines.driver import EnginePodDriver
from windlass_agent.executors.kubernetes.engines.holders import held, holder_of
from windlass_agent.executors.kubernetes.engines.hosts import HostCall, Hosts, resident_uid
from windlass_agent.executors.kubernetes.engines.keepers import Keepers
from windlass_agent.executors.kubernetes.engines.launching import EngineLauncher
from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot, trim_deployment
from windlass_agent.executors.kubernetes.engines.residents import Residents
from windlass_agent.executors.kubernetes.engines.tracked import Due
from windlass_agent.executors.kubernetes.observe.snapshot import Container, Key
from windlass_agent.executors.kubernetes.render.engine_plan import digest
from windlass_agent.kube.resources import DEPLOYMENTS

MADE = lease("main", gpus=1)
ROOT = replace(
    deployment(MADE), digest=digest(MADE), project="proj_A", queue="main", is_lease=True, hosts=True
)
HOST = replace(POD, key=Key("lease-1", 0), name="lease-1-x", uid="u-9")
SERVES = keeper_pb2.EngineState(phase=pb.PHASE_RUNNING)


def worker(name: str = "eng-1", **changes: Any) -> pb.Workload:
    made = trainer("main", gpus=1, lease_id="lease-1", **changes)
    made.id, made.project_id = name, "proj_A"
    made.engine.memory_bytes = 2 * GIB
    made.desired = pb.DESIRED_STATE_RUNNING
    return made


def state(name: str, slot: int = 0, **changes: Any) -> keeper_pb2.ResidentState:
    said = {"digest": digest(worker(name))} | changes
    return keeper_pb2.ResidentState(workload_id=name, slot=slot, **said)


def report(*states: keeper_pb2.ResidentState, order: int = 0) -> keeper_pb2.HostReport:
    return keeper_pb2.HostReport(residents=states, order=order)


class Known:
    """Stands for the queues and nodes of a cluster."""

    def covered(self, namespace: str, queue: str) -> frozenset[str]:
        return COUNTED

    def choice(self, accelerator: str) -> None:
        return None


class Stage:
    """A driver whose cluster is what a test says."""

    def __init__(self) -> None:
        self.keepers = Keepers(lambda: None)
        self.hosts = Hosts(lambda: None, self.keepers.drop)
        self.shown: dict[str, EngineSnapshot] = {"lease-1": EngineSnapshot(root=ROOT, pods=(HOST,))}
        nothing: Any = None
        stage: Any = self
        known: Any = Known()
        residents = Residents(self.hosts)
        self.driver = EnginePodDriver(
            cluster_id="cl-1", memory=nothing, informers=stage, keepers=self.keepers,
            launcher=EngineLauncher(nothing, with_trainers(), known, residents),
            residents=residents, positions=dict, patience=PATIENCE, gpus=None,
            looked=asyncio.Event(), changed=lambda: None,
        )  # fmt: skip

    def snapshots(self, positions: object) -> dict[str, EngineSnapshot]:
        return dict(self.shown)

    async def look(self) -> None:
        self.driver._look()
        # For the steps that are due.
        for _ in range(3):
            await asyncio.sleep(0)
        self.driver._look()

    def status(self, name: str) -> pb.WorkloadStatus | None:
        found = {one.workload_id: one for one in self.driver.statuses()}
        return found.get(name)

    def phase(self, name: str) -> "pb.Phase.ValueType | None":
        said = self.status(name)
        return said.phase if said is not None else None

    def order(self, call: HostCall) -> keeper_pb2.HostOrder:
        """The order that the host is told next."""
        found = self.hosts.order(call)
        assert found is not None
        return self.hosts.sent(call, found)

    async def hosting(self, *states: keeper_pb2.ResidentState) -> Any:
        """The call of the host, after its lease was told."""
        await self.driver.apply(MADE)
        await self.look()
        return self.hosts.begin(HOST.uid, report(*states))

    async def close(self) -> None:
        await self.driver.close()


@pytest.fixture
async def stage() -> Any:
    made = Stage()
    yield made
    await made.close()


async def test_a_resident_is_ordered_runs_by_its_keeper_and_ends_when_its_host_says_so(
    stage: Stage,
) -> None:
    call = await stage.hosting()
    assert stage.phase("lease-1") == pb.PHASE_RUNNING
    for name in ("eng-1", "eng-2"):
        await stage.driver.apply(worker(name))
    await stage.look()
    order = stage.order(call)
    assert [(one.workload_id, one.slot) for one in order.residents] == [("eng-1", 0), ("eng-2", 1)]
    stage.hosts.say(call, report(state("eng-1"), state("eng-2", 1), order=1))
    stage.keepers.begin(resident_uid(HOST.uid, "eng-2"), SERVES)
    await stage.look()
    said = stage.status("eng-2")
    assert said is not None
    assert (said.phase, said.endpoint) == (pb.PHASE_RUNNING, "pod://team-a/lease-1-x")
    assert stage.phase("eng-1") == pb.PHASE_STARTING
    assert (stage.driver.address("eng-2"), stage.driver.door_port("eng-2")) == ("10.0.0.7", 8444)
    # It is to go, and has gone once its host says so of this order.
    await stage.driver.apply(
        pb.Workload(id="eng-2", generation=9, desired=pb.DESIRED_STATE_DELETED)
    )
    await stage.look()
    assert stage.phase("eng-2") == pb.PHASE_STOPPING
    order = stage.order(call)
    assert [one.workload_id for one in order.residents] == ["eng-1"]
    assert not order.kept
    stage.hosts.say(call, report(state("eng-1"), order=1))
    await stage.look()
    assert stage.status("eng-2") is not None, "it may have been started by the order before"
    stage.hosts.say(call, report(state("eng-1"), order=2))
    await stage.look()
    assert stage.status("eng-2") is None


async def test_who_ends_by_itself_has_failed_in_words_without_its_output(stage: Stage) -> None:
    call = await stage.hosting()
    await stage.driver.apply(worker())
    await stage.look()
    stage.order(call)
    end = keeper_pb2.ResidentEnd(code=137, last_lines="of a request")
    stage.hosts.say(call, report(state("eng-1", end=end), order=1))
    await stage.look()
    said = stage.status("eng-1")
    assert said is not None
    assert (said.phase, said.reason) == (pb.PHASE_FAILED, "ProcessExited")
    assert "137" in said.message
    assert "request" not in said.message
    # It is ordered no more, so that its folder goes.
    assert not stage.order(call).residents


@pytest.mark.parametrize(
    ("exceeded", "reason", "words"),
    [
        ("memory", "OutOfMemory", "2.2 GiB"),
        ("disk", "ProcessExited", "disk"),
        ("x", "ProcessExited", "code 137"),
    ],
)
async def test_who_had_more_than_it_may_is_told_of_what(
    stage: Stage, exceeded: str, reason: str, words: str
) -> None:
    call = await stage.hosting()
    await stage.driver.apply(worker())
    await stage.look()
    end = keeper_pb2.ResidentEnd(code=137, exceeded=exceeded)
    stage.hosts.say(call, report(state("eng-1", end=end)))
    stage.driver._look()
    said = stage.status("eng-1")
    assert said is not None
    assert said.reason == reason
    assert words in said.message


async def test_a_lost_host_loses_all_its_residents(stage: Stage) -> None:
    call = await stage.hosting()
    await stage.driver.apply(worker())
    await stage.look()
    stage.order(call)
    stage.hosts.say(call, report(state("eng-1"), order=1))
    stage.keepers.begin(resident_uid(HOST.uid, "eng-1"), SERVES)
    await stage.look()
    stage.shown["lease-1"] = EngineSnapshot(root=ROOT)
    await stage.look()
    assert call.superseded
    said = stage.status("eng-1")
    assert said is not None
    assert (said.phase, said.reason) == (pb.PHASE_PENDING, "NoLease")
    # The next pod of the lease is another host.
    assert stage.hosts.find(HOST.uid) is None


async def test_residents_are_adopted_after_the_agents_restart_and_the_unwanted_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "windlass_agent.executors.kubernetes.engines.residents.UNKNOWN_SECONDS"
    call = await stage.hosting(state("eng-1", 3), state("old", 1))
    await stage.driver.apply(worker("new"))
    await stage.look()
    order = stage.order(call)
    assert sorted(order.kept) == ["eng-1", "old"], "it may be about to hear of them"
    assert not order.residents, "nobody begins beside them"
    assert stage.status("eng-1") is None
    await stage.driver.apply(worker())
    stage.keepers.begin(resident_uid(HOST.uid, "eng-1"), SERVES)
    await stage.look()
    assert stage.phase("eng-1") == pb.PHASE_RUNNING
    assert stage.driver.door_port("eng-1") == 8446
    monkeypatch.setattr(module, 0.0)
    await stage.look()
    order = stage.order(call)
    assert order.kept == ["eng-1"]
    stage.hosts.say(call, report(state("eng-1", 3), order=order.number))
    await stage.look()
    order = stage.order(call)
    assert [(one.workload_id, one.slot) for one in order.residents] == [("new", 0)]


async def test_who_waited_for_an_unknown_resident_is_ordered_once_that_is_told(
    stage: Stage,
) -> None:
    """The host's call is woken by the look that hears of it: nothing else would."""
    call = await stage.hosting(state("eng-1", 3))
    await stage.driver.apply(worker("new"))
    host = stage.hosts.find(HOST.uid)
    assert host is not None
    assert host.unknown == {"eng-1"}, "from its first word on"
    await stage.look()
    assert not stage.order(call).residents
    call.news.clear()
    await stage.driver.apply(worker())
    await stage.look()
    assert call.news.is_set()
    assert [one.workload_id for one in stage.order(call).residents] == ["new"]


async def test_a_resident_that_changes_is_started_anew(stage: Stage) -> None:
    call = await stage.hosting(state("eng-1", 0, digest="of another spec"))
    await stage.driver.apply(worker())
    await stage.look()
    order = stage.order(call)
    assert not order.kept
    assert not order.residents
    stage.hosts.say(call, report(order=order.number))
    await stage.look()
    assert [one.digest for one in stage.order(call).residents] == [digest(worker())]


@pytest.mark.parametrize(
    "changes",
    [{"project_id": "proj_B"}, {"lease": "lease-2"}, {"namespace": "team-b"}],
)
async def test_a_pod_speaks_for_nobody_who_sits_elsewhere(
    stage: Stage, changes: dict[str, str]
) -> None:
    made = worker("theirs")
    made.project_id = changes.get("project_id", made.project_id)
    made.placement.namespace = changes.get("namespace", made.placement.namespace)
    made.engine.trainer.lease_id = changes.get("lease", "lease-1")
    await stage.hosting(state("theirs"))
    await stage.driver.apply(made)
    stage.keepers.begin(resident_uid(HOST.uid, "theirs"), SERVES)
    await stage.look()
    assert not stage.driver.sits(HOST, "theirs")
    assert stage.phase("theirs") == pb.PHASE_PENDING
    assert stage.driver.address("theirs") == ""


async def test_objects_of_a_workload_count_whatever_a_pod_says(stage: Stage) -> None:
    await stage.hosting(state("eng-1"))
    made = worker()
    stage.shown["eng-1"] = EngineSnapshot(root=deployment(made, queue=""), pods=(POD,))
    await stage.driver.apply(made)
    await stage.look()
    assert stage.driver._engines["eng-1"].snapshot.pods == (POD,)


async def test_a_resident_of_an_old_name_serves_by_no_old_word(stage: Stage) -> None:
    call = await stage.hosting()
    await stage.driver.apply(worker())
    await stage.look()
    stage.order(call)
    stage.hosts.say(call, report(state("eng-1"), order=1))
    keeper = stage.keepers.begin(resident_uid(HOST.uid, "eng-1"), SERVES)
    await stage.look()
    assert stage.phase("eng-1") == pb.PHASE_RUNNING
    # Its container has ended with the launcher, and is there again.
    call = stage.hosts.begin(HOST.uid, report())
    stage.hosts.say(call, report(state("eng-1")))
    await stage.look()
    assert keeper.superseded
    assert stage.phase("eng-1") == pb.PHASE_STARTING


async def test_one_that_takes_its_pod_along_twice_has_failed(stage: Stage) -> None:
    """As a container does that ends again and again before it serves."""
    await stage.hosting()
    await stage.driver.apply(worker())
    end = Container(state="terminated", reason="OOMKilled", exit_code=137)
    for number in range(3):
        await stage.look()
        stage.shown["lease-1"] = EngineSnapshot(
            root=ROOT, pods=(replace(HOST, restarts=number, last_end=end if number else None),)
        )
        call = stage.hosts.begin(HOST.uid, report())
        stage.hosts.say(call, report(state("eng-1")))
        loads = keeper_pb2.EngineState(phase=pb.PHASE_STARTING, reason="Loading")
        stage.keepers.begin(resident_uid(HOST.uid, "eng-1"), loads)
        stage.driver._look()
    said = stage.status("eng-1")
    assert said is not None
    assert (said.phase, said.reason) == (pb.PHASE_FAILED, "OutOfMemory")


def test_a_counted_lease_holds_its_devices_once_it_runs() -> None:
    shown = EngineSnapshot(root=ROOT, pods=(HOST,))
    assert held(shown) is not None
    found = holder_of(worker(), shown)
    assert found is not None
    assert (found.uid, found.claim) == (HOST.uid, "")
    early = replace(shown, pods=(replace(HOST, runner=Container(state="waiting")),))
    assert held(early) is None
    marks = {"windlass.dev/workload": "lease-1", "windlass.dev/role": "lease"}
    notes = {"windlass.dev/hosts": "true"}
    metadata = {"name": "n", "namespace": "t", "uid": "u", "labels": marks, "annotations": notes}
    root = trim_deployment(DEPLOYMENTS, {"metadata": metadata})
    assert root is not None
    assert (root.is_lease, root.hosts) == (True, True)


async def test_a_resident_waits_for_its_host_to_call(stage: Stage) -> None:
    await stage.driver.apply(MADE)
    await stage.driver.apply(worker())
    await stage.look()
    said = stage.status("eng-1")
    assert said is not None
    assert (said.phase, said.reason) == (pb.PHASE_PENDING, "NoHost")
    assert told(worker()).due(0) is Due.APPLY


async def test_the_sixty_fifth_resident_is_refused(stage: Stage) -> None:
    await stage.hosting(*(state(f"f{one}", one) for one in range(64)))
    await stage.driver.apply(worker())
    await stage.look()
    said = stage.status("eng-1")
    assert said is not None
    assert (said.phase, said.reason) == (pb.PHASE_FAILED, "NoRoom")
