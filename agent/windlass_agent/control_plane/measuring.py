"""Metrics of an agent's workloads, for operators."""

from collections import Counter
from collections.abc import Iterable, Mapping

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.metrics.agent import SLOTS, WORKLOADS

KINDS = ("job", "engine", "guest", "other")
PHASES = {
    number: name.removeprefix("PHASE_").lower() for name, number in pb.Phase.items() if number
}


def show(
    statuses: Iterable[pb.WorkloadStatus], wanted: Mapping[str, pb.Workload], capacity: pb.Capacity
) -> None:
    """Sets the metrics of workloads and slots."""
    found = Counter((_kind(wanted.get(one.workload_id)), one.phase) for one in statuses)
    for kind in KINDS:
        for phase, name in PHASES.items():
            WORKLOADS.labels(kind, name).set(found[kind, phase])
    for kind, size, used in (
        ("job", capacity.slots, capacity.used_slots),
        ("engine", capacity.engine_slots, capacity.used_engine_slots),
    ):
        SLOTS.labels(kind, "used").set(used)
        SLOTS.labels(kind, "free").set(max(0, size - used))


def _kind(workload: pb.Workload | None) -> str:
    kind = workload.WhichOneof("spec") if workload is not None else None
    return kind if kind in KINDS else "other"
