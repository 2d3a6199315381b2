"""GPUs and memory that an engine finds on the machines and nodes that its cluster reports.

What nobody has said is not guessed: then nothing is chosen, and nothing is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2
from windlass.bounds import MAX_ENGINE_GPUS
from windlass.engine_arguments import UNCHOSEN, EngineArguments
from windlass.inference.domain import Name
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.quantization import unreadable
from windlass.serving_fit import GIB, DoesNotFit, LeastNeed, fit, least_need, weight_width

# They keep the weights on their GPUs, all of them, and divide them over several.
DIVIDE = frozenset({"sglang", "vllm"})
KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class EngineWish:
    """Needs of each engine of a version, as far as they decide where it can run."""

    name: Name
    kind: str
    arguments: EngineArguments = UNCHOSEN
    # Of each of its nodes; 0 for what engines usually have there.
    gpus: int = 0
    nodes: int = 1
    draft: Name | None = None


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """Room of one engine on a machine or node: the memory of each GPU; of the node without one."""

    gpus: tuple[int, ...]
    memory_bytes: int

    def total(self, gpus: int) -> int:
        """The bytes of an engine with so many of the GPUs, 0 for all of them."""
        return sum(self.gpus[: gpus or None]) if self.gpus else self.memory_bytes


def rooms_of(cluster: clusters_pb2.Cluster, gpus: int = 0) -> tuple[NodeRoom, ...]:
    """The rooms of engines that ask for so many GPUs; none where that of one is not known."""
    capacity = cluster.capacity
    if capacity.node_shapes:
        return _of_nodes(capacity, gpus or capacity.engine_gpus)
    if cluster.executor == KUBERNETES:
        return ()
    memory = sorted((one.memory_bytes for one in capacity.devices), reverse=True)
    if memory:
        return (NodeRoom(tuple(memory), capacity.memory_bytes),) if all(memory) else ()
    if capacity.gpus or not capacity.memory_bytes:
        return ()
    return (NodeRoom((), capacity.memory_bytes),)


def is_without_gpus(cluster: clusters_pb2.Cluster, gpus: int = 0) -> bool:
    """Returns True if an engine that asks for so many GPUs has none there for sure."""
    capacity = cluster.capacity
    if capacity.node_shapes:
        return not (gpus or capacity.engine_gpus)
    return cluster.executor != KUBERNETES and not (capacity.gpus or capacity.devices)


def fitting_gpus(wish: EngineWish, cluster: clusters_pb2.Cluster, adapters: int, now: int) -> int:
    """Returns the fewest GPUs on which a model fits, by the estimate; 0 for what is usual there, or
    where nothing is known.

    On nodes that differ, so many that it fits on whichever it comes to. All that it may be divided
    over where it fits on none: the engine says then what it lacks. An engine that has `now` GPUs
    keeps them while that is a choice. A draft whose size is not known counts for nothing.
    """
    rooms = [room for room in rooms_of(cluster, wish.gpus) if room.gpus]
    if wish.name.footprint is None or not rooms:
        return 0
    tried = [_fewest(wish, wish.name.footprint, room, adapters) for room in rooms]
    fitting = [number for number, fits in tried if fits]
    usual = max(1, cluster.capacity.engine_gpus)
    found = {number if number > usual else 0 for number in fitting or [max(tried)[0]]}
    return now if now in found else max(found)


def _fewest(wish: EngineWish, model: Footprint, room: NodeRoom, adapters: int) -> tuple[int, bool]:
    """The fewest GPUs of a node, and whether it fits on them."""
    draft = wish.draft.footprint if wish.draft else None
    number, most = 1, 1
    while number <= len(room.gpus):
        if not any(one.heads % number for one in (model, draft) if one):
            most = number
            try:
                fit(
                    model,
                    devices=number,
                    memory_bytes=room.gpus[number - 1],
                    arguments=wish.arguments,
                    adapters=adapters,
                    draft=draft,
                )
                return number, True
            except DoesNotFit:
                pass
        number *= 2
    return most, False


def cannot_run(wish: EngineWish, cluster: clusters_pb2.Cluster) -> str:
    """Returns why no engine of a version can ever run in a cluster; empty where one may.

    What is not certain is left to the engine, which measures.
    """
    name, on_cpus = wish.name, is_without_gpus(cluster, wish.gpus)
    for one in (name, wish.draft):
        if one and (why := unreadable(one.quantization, wish.kind, on_cpus=on_cpus)):
            return why if one is name else f"Of its draft: {why}"
    most = max((one.devices for one in cluster.capacity.node_shapes), default=0)
    if 0 < most < wish.gpus:
        return f"Each engine should have {wish.gpus} GPUs on a node; the largest node has {most}."
    rooms = rooms_of(cluster, wish.gpus)
    if name.footprint is None or not rooms:
        return ""
    if rooms[0].gpus and wish.kind not in DIVIDE:
        # Of what it keeps where, it decides itself.
        return ""
    draft = wish.draft.footprint if wish.draft else None
    width = _width(wish, on_cpus=on_cpus)
    need = least_need(name.footprint, arguments=wish.arguments, draft=draft, width=width)
    has = _largest(rooms, wish)
    return "" if need.total <= has * wish.nodes else _too_big(need, has, wish, rooms)


def largest(wish: EngineWish, cluster: clusters_pb2.Cluster) -> int:
    """The most memory that an engine finds on one machine or node of a cluster, in bytes."""
    return _largest(rooms_of(cluster, wish.gpus), wish)


def _largest(rooms: Iterable[NodeRoom], wish: EngineWish) -> int:
    return max((one.total(wish.gpus) for one in rooms), default=0)


def _too_big(need: LeastNeed, has: int, wish: EngineWish, rooms: tuple[NodeRoom, ...]) -> str:
    cache = (
        f", the keys and values of {need.tokens} tokens {_gib(need.cache_bytes)}"
        if need.cache_bytes
        else ""
    )
    of_draft = (
        f" Of the weights, {_gib(need.draft_bytes)} are its draft's." if need.draft_bytes else ""
    )
    what = "GPU memory" if rooms[0].gpus else "memory"
    over = f" on each of {wish.nodes} nodes" if wish.nodes > 1 else ""
    return (
        f"The weights take {_gib(need.weight_bytes)}{cache} and the engine at least "
        f"{_gib(need.workspace_bytes)}; an engine would have {_gib(has)} of {what}{over} in the "
        f"largest live cluster.{of_draft}"
    )


def _width(wish: EngineWish, *, on_cpus: bool) -> int:
    """The bytes of each weight in the engine's memory."""
    if wish.kind == "llamacpp":
        return 2
    if wish.kind == "builtin" and on_cpus and wish.arguments.dtype in (None, "auto"):
        return 4
    return weight_width(wish.arguments)


def _of_nodes(capacity: clusters_pb2.Capacity, gpus: int) -> tuple[NodeRoom, ...]:
    if not gpus:
        found = {NodeRoom((), one.memory_bytes) for one in capacity.node_shapes}
        known = all(one.memory_bytes for one in found)
    else:
        shapes = [one for one in capacity.node_shapes if one.devices >= gpus]
        found = {
            NodeRoom(
                (one.device_memory_bytes,) * min(one.devices, MAX_ENGINE_GPUS), one.memory_bytes
            )
            for one in shapes
        }
        known = all(one.device_memory_bytes for one in shapes)
    return tuple(sorted(found, key=lambda one: (one.gpus, one.memory_bytes))) if known else ()


def _gib(number: int) -> str:
    return f"{number / GIB:.1f} GiB"
