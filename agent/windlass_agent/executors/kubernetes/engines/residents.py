"""Residents of counted leases: engines whose pod is that of their lease, and whose word is its.

A resident has no objects. What is shown of it is what its host says, for a workload that the
control plane has told of as one of that lease, of its project and namespace; for no other.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.core import telemetry
from windlass.kubernetes.names import engine_name
from windlass_agent.executors.kubernetes.engines.hosts import (
    HostedPod,
    Hosts,
    resident_uid,
)
from windlass_agent.executors.kubernetes.engines.observed import EngineRoot, EngineSnapshot
from windlass_agent.executors.kubernetes.engines.tracked import TrackedEngine
from windlass_agent.executors.kubernetes.observe.diagnosis import Diagnosis, failure, waits
from windlass_agent.executors.kubernetes.observe.snapshot import Container, Key, PodSnapshot
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan, digest
from windlass_agent.executors.kubernetes.render.host import resident
from windlass_agent.keeper.host.order import MAX_RESIDENTS
from windlass_agent.kube.resources import PODS
from windlass_agent.memory import in_units

# For the control plane to tell of residents that an earlier life of the agent has ordered.
UNKNOWN_SECONDS = 10.0
_RUNS = Container(state="running")
_NO_HOST = waits("NoHost", "The pod that hosts it has not called yet.", "setup")

log = telemetry.logger("residents")


class Residents:
    """Residents of a cluster's hosts."""

    def __init__(self, hosts: Hosts):
        self._hosts = hosts
        # Leases by the uids of their pods, as the cluster shows them.
        self._leases: dict[str, EngineRoot] = {}

    def hosted_by(self, pod: PodSnapshot) -> EngineRoot | None:
        """The lease that a pod hosts residents for; None of a pod that is to host none."""
        lease = self._leases.get(pod.uid)
        return lease if lease is not None and lease.workload == pod.key.workload else None

    def sits(self, pod: PodSnapshot, engine: TrackedEngine | None) -> bool:
        """Returns True if an engine is a resident of a pod, which may speak for it then."""
        lease, host = self.hosted_by(pod), self._hosts.find(pod.uid)
        if lease is None or host is None or engine is None or not engine.told:
            return False
        return _is_of(engine.workload, lease) and host.has(engine.workload.id)

    def show(
        self, engines: Mapping[str, TrackedEngine], snapshots: dict[str, EngineSnapshot]
    ) -> None:
        """Adds what hosts show of their residents, and ends those whom nobody wants."""
        found = list(_hosting(snapshots))
        self._leases = {pod.uid: root for root, pod in found}
        self._hosts.keep(self._leases.keys())
        for root, pod in found:
            host = self._hosts.find(pod.uid)
            if host is None:
                continue
            told = [one for one in engines.values() if one.told and _is_of(one.workload, root)]
            for engine in told:
                name = engine.workload.id
                if host.has(name) and name not in snapshots:
                    snapshots[name] = _shown(engine.workload, root, pod, host)
            lease = engines.get(root.workload)
            self._end_unknown(pod.uid, host, {one.workload.id for one in told}, lease)

    def _end_unknown(
        self, uid: str, host: HostedPod, told: set[str], lease: TrackedEngine | None
    ) -> None:
        unknown = frozenset(name for name in host.kept if name not in told)
        if unknown != host.unknown:
            host.unknown = unknown
            # Whoever waited for them may begin.
            host.call.news.set()
        # The control plane tells of a lease and of all that sits there at once.
        waited = time.monotonic() - host.since >= UNKNOWN_SECONDS
        if lease is None or not lease.told or not waited:
            return
        for name in host.unknown:
            log.info("resident_unwanted", workload=name, lease=lease.workload.id)
            self._hosts.end(uid, name)

    def place(self, uid: str, plan: EnginePlan) -> Diagnosis | None:
        """Has a host run a resident; returns what prevents it."""
        host = self._hosts.find(uid)
        if host is None:
            return _NO_HOST
        name = plan.workload.id
        slot = host.slot(name) if host.has(name) else host.free_slot()
        if slot is None:
            return failure("NoRoom", f"A pod hosts {MAX_RESIDENTS} residents at most.")
        self._hosts.want(uid, resident(plan, slot))
        return None

    def end(self, uid: str, workload_id: str) -> None:
        """Has a host end a resident."""
        self._hosts.end(uid, workload_id)

    def end_of(self, root: EngineRoot) -> keeper_pb2.EngineState | None:
        """The state of a resident that has ended by itself, in place of its keeper's word."""
        host = self._hosts.find(root.uid)
        said = host.states.get(root.workload) if host is not None else None
        if said is None or host is None or not said.HasField("end"):
            return None
        wanted = host.wanted.get(root.workload)
        return _ended(said.end, wanted.memory_bytes if wanted is not None else 0)

    def slot(self, root: EngineRoot) -> int:
        """The slot of a resident; 0 of one that is no more."""
        host = self._hosts.find(root.uid)
        return host.slot(root.workload) if host is not None and host.has(root.workload) else 0


def _hosting(
    snapshots: Mapping[str, EngineSnapshot],
) -> Iterator[tuple[EngineRoot, PodSnapshot]]:
    for shown in snapshots.values():
        if shown.root is not None and shown.root.is_lease and shown.root.hosts:
            for pod in shown.pods:
                if not pod.ended:
                    yield shown.root, pod


def _is_of(workload: pb.Workload, lease: EngineRoot) -> bool:
    """Returns True for a workload that sits on a lease, of the same project and namespace."""
    whose = workload.project_id, workload.placement.namespace
    asked = workload.engine.trainer.lease_id
    return asked == lease.workload and whose == (lease.project, lease.namespace)


def _shown(
    workload: pb.Workload, lease: EngineRoot, pod: PodSnapshot, host: HostedPod
) -> EngineSnapshot:
    name = workload.id
    state, wanted = host.states.get(name), host.wanted.get(name)
    said = wanted or state
    root = EngineRoot(
        resource=PODS,
        workload=name,
        project=lease.project,
        namespace=lease.namespace,
        name=engine_name(name),
        uid=pod.uid,
        generation=workload.generation,
        digest=said.digest if said is not None else digest(workload),
        queue="",
        deleting=name in host.leaving,
        refusal="",
        is_resident=True,
    )
    losses = host.losses.get(name, 0)
    sits = replace(
        pod,
        key=Key(name, 0),
        uid=resident_uid(pod.uid, name),
        runner=_RUNS,
        restarts=losses,
        last_end=pod.last_end if losses else None,
        claim="",
    )
    return EngineSnapshot(root=root, pods=(sits,) if state is not None else ())


def _ended(end: keeper_pb2.ResidentEnd, memory: int) -> keeper_pb2.EngineState:
    most = f"the {in_units(memory)} that it may use" if memory else "it may use"
    said = {
        "memory": f"The process needed more memory than {most}.",
        "disk": "The process wrote more to its disk than it may.",
    }
    # Its last words may be of requests: they are in the log of its pod and of the agent alone.
    ended = f"The process ended with code {end.code}; the operator finds its last words in a log."
    return keeper_pb2.EngineState(
        phase=pb.PHASE_FAILED,
        reason="OutOfMemory" if end.exceeded == "memory" else "ProcessExited",
        message=said.get(end.exceeded, ended),
    )
