"""Room for one engine more in the quota of Kueue's queues, as agents reported it last; pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import Engine, View, weights_of
from windlass.kubernetes.quota_kinds import CPU, GPUS, MEMORY, kind_of, spelled

# Before a cluster admits an engine, and before it has said anything of it.
_UNADMITTED = frozenset({clusters_pb2.PHASE_UNSPECIFIED, clusters_pb2.PHASE_PENDING})


class QueueRoom(NamedTuple):
    """Room for an engine in a queue, and what is free there in words; empty if not known."""

    is_there: bool
    words: str = ""


class EngineNeed(NamedTuple):
    """Demands of an engine on a quota: the GPUs of each node, 0 for its cluster's own number."""

    project_id: str
    gpus: int = 0
    nodes: int = 1
    weight_bytes: int = 0
    # Of each node, 0 for its cluster's own number.
    memory_bytes: int = 0


# Of machines too, where nobody counts.
UNKNOWN = QueueRoom(is_there=True)


@dataclass(frozen=True, slots=True)
class _Queue:
    """A ClusterQueue, and the most of each kind that is free in one of its flavors."""

    name: str
    active: bool
    free: Mapping[str, int]


class QuotaRoom:
    """Free quota of the projects' queues, less what engines take that wait for it."""

    def __init__(self, view: View, engines: Iterable[Engine]):
        self._view = view
        self._queues: dict[tuple[str, str], _Queue | None] = {}
        self._taken: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        if view.queues:
            for engine in engines:
                self.count(engine, 1)

    def count(self, engine: Engine, number: int) -> None:
        """Counts an engine that starts, or with -1 no more; one that was admitted is in `used`."""
        if engine.cluster_id not in self._view.queues or engine.is_adopted:
            return
        if self._view.status(engine).phase not in _UNADMITTED:
            return
        need = self._need_of(engine)
        if (queue := self._queue(engine.cluster_id, need)) is not None:
            taken = self._taken[engine.cluster_id, queue.name]
            for kind, amount in self._amounts(engine.cluster_id, need).items():
                taken[kind] += number * amount

    def of(self, cluster_id: str, need: EngineNeed) -> QueueRoom:
        """The room that a cluster has for one engine more."""
        queue = self._queue(cluster_id, need)
        if queue is None:
            return UNKNOWN
        if not queue.active:
            return QueueRoom(False, f"its queue {queue.name} admits nothing")
        taken = self._taken[cluster_id, queue.name]
        amounts = self._amounts(cluster_id, need)
        asked = {kind: one for kind, one in amounts.items() if one and kind in queue.free}
        if not asked:
            return UNKNOWN
        left = {kind: max(0, queue.free[kind] - taken[kind]) for kind in asked}
        scarcest = min(asked, key=lambda kind: left[kind] / asked[kind])
        words = f"{spelled(scarcest, left[scarcest])} free in its queue {queue.name}"
        return QueueRoom(left[scarcest] >= asked[scarcest], words)

    def _queue(self, cluster_id: str, need: EngineNeed) -> _Queue | None:
        """The queue of a project; None while nothing is known of it."""
        if cluster_id not in self._view.queues or cluster_id not in self._view.clusters:
            return None
        if (assignment := self._view.assignment(cluster_id, need.project_id)) is None:
            return None
        key = (cluster_id, assignment.cluster_queue)
        if key not in self._queues:
            found = self._view.queues[cluster_id].get(assignment.cluster_queue)
            self._queues[key] = None if found is None else _read(found)
        return self._queues[key]

    def _amounts(self, cluster_id: str, need: EngineNeed) -> dict[str, int]:
        """Amounts that an engine asks its queue for, or less: some of it only its agent knows."""
        each = self._view.clusters[cluster_id].capacity.each_engine
        return {
            GPUS: (need.gpus or each.gpus) * need.nodes,
            CPU: each.cpu_millis * need.nodes,
            MEMORY: (need.memory_bytes or each.memory_bytes) * need.nodes or need.weight_bytes,
        }

    def _need_of(self, engine: Engine) -> EngineNeed:
        names, version = self._view.names, engine.version_id
        weights = weights_of(names, version).weight_bytes if version in names else 0
        nodes = max(1, engine.nodes)
        return EngineNeed(engine.project_id, engine.gpus, nodes, weights, engine.memory_bytes)


def _read(message: clusters_pb2.ClusterQueue) -> _Queue:
    free: dict[str, int] = {}
    for quota in message.quotas:
        kind = kind_of(quota.resource)
        free[kind] = max(free.get(kind, 0), quota.available)
    return _Queue(message.name, message.active, free)
