"""Metrics of an agent's workloads, for operators."""

from collections import Counter
from collections.abc import Iterable, Mapping

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.metrics.agent import (
    ENGINE_CACHE,
    ENGINE_REQUESTS,
    ENGINE_TOKENS,
    SLOTS,
    WORKLOADS,
)
from windlass_agent.engines.load import EngineLoad

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


def show_engines(loads: Mapping[str, EngineLoad], wanted: Mapping[str, pb.Workload]) -> None:
    """Sets the metrics of engines that serve, and of no others."""
    for metric in (ENGINE_REQUESTS, ENGINE_CACHE, ENGINE_TOKENS):
        metric.clear()
    for identifier, load in loads.items():
        if (workload := wanted.get(identifier)) is None:
            continue
        engine = workload.engine
        labels = (identifier, engine.engine, engine.model, workload.project_id)
        ENGINE_CACHE.labels(*labels).set(load.cache_used or 0.0)
        ENGINE_REQUESTS.labels(*labels, "running").set(load.running)
        ENGINE_REQUESTS.labels(*labels, "waiting").set(load.waiting)
        for what, number in (
            ("prompt", load.prompt_tokens),
            ("cached", load.cached_tokens),
            ("generated", load.generated_tokens),
        ):
            # Anew, since the engine counts them.
            ENGINE_TOKENS.labels(*labels, what).inc(number)


def _kind(workload: pb.Workload | None) -> str:
    kind = workload.WhichOneof("spec") if workload is not None else None
    return kind if kind in KINDS else "other"
