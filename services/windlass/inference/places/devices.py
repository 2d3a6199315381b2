"""GPUs and memory that an engine finds on the machines and nodes that its cluster reports.

What nobody has said is not guessed: then nothing is chosen, and nothing is refused.
"""

from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2
from windlass.bounds import MAX_ENGINE_GPUS, NORMAL_PRIORITY
from windlass.engine_arguments import UNCHOSEN, EngineArguments
from windlass.inference.domain import Name
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.quantization import unreadable
from windlass.serving_fit import (
    GIB,
    LEAST_CONTEXT,
    DoesNotFit,
    LeastNeed,
    fit,
    least_need,
    weight_width,
)

# They keep the weights on their GPUs, all of them, and divide them over several.
DIVIDE = frozenset({"sglang", "vllm"})
KUBERNETES = "kubernetes"
# Of a resource of NVIDIA's MIG.
_PARTS = "/mig-"


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
    # A name of an accelerator, empty for any; memory of each node, 0 for what is usual.
    accelerator: str = ""
    memory_bytes: int = 0
    priority: str = NORMAL_PRIORITY


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """Room of one engine on a machine or node: the memory of each GPU; of the node without one."""

    gpus: tuple[int, ...]
    memory_bytes: int

    def total(self, gpus: int) -> int:
        """The bytes of an engine with so many of the GPUs, 0 for all of them."""
        return sum(self.gpus[: gpus or None]) if self.gpus else self.memory_bytes


@dataclass(frozen=True, slots=True)
class ClusterRooms:
    """Rooms of a cluster for engines with the same needs."""

    # Why it has nothing for them; empty if it has.
    lack: str
    # True if they have no GPU there for sure.
    on_cpus: bool
    # None where that of one is not known.
    rooms: tuple[NodeRoom, ...]
    # The most memory that one finds on one machine or node, in bytes.
    most: int


class DeviceCheck:
    """Answers of one round of planning on devices, each found once."""

    def __init__(self, max_adapters: int):
        self._max_adapters = max_adapters
        self._rooms: dict[tuple[object, ...], ClusterRooms] = {}
        self._needs: dict[tuple[str, bool], LeastNeed] = {}
        self._fewest: dict[tuple[str, NodeRoom], tuple[int, bool]] = {}
        self._choices: dict[tuple[str, str], set[int]] = {}

    def rooms(self, wish: EngineWish, cluster: clusters_pb2.Cluster) -> ClusterRooms:
        """The rooms of a cluster for engines like these."""
        key = cluster.id, wish.gpus, wish.accelerator, wish.memory_bytes, wish.priority
        if key not in self._rooms:
            found = rooms_of(cluster, wish)
            most = max((one.total(wish.gpus) for one in found), default=0)
            lack, on_cpus = _lack(cluster, wish), _is_without_gpus(cluster, wish)
            self._rooms[key] = ClusterRooms(lack, on_cpus, found, most)
        return self._rooms[key]

    def refusal(self, wish: EngineWish, cluster: clusters_pb2.Cluster) -> str:
        """Returns why no engine of a version can ever run in a cluster; empty where one may.

        What is not certain is left to the engine, which measures.
        """
        found, name = self.rooms(wish, cluster), wish.name
        if found.lack:
            return found.lack
        for one in (name, wish.draft):
            if one and (why := unreadable(one.quantization, wish.kind, on_cpus=found.on_cpus)):
                return why if one is name else f"Of its draft: {why}"
        if not found.rooms or (found.rooms[0].gpus and wish.kind not in DIVIDE):
            # Of what others keep where, they decide themselves.
            return ""
        need = self._need(wish, on_cpus=found.on_cpus)
        if need is None or need.total <= found.most * wish.nodes:
            return ""
        return _too_big(need, found, wish)

    def gpus(self, wish: EngineWish, cluster: clusters_pb2.Cluster, now: int | None) -> int:
        """Returns the fewest GPUs on which a model fits, by the estimate; 0 for what is usual
        there, or where nothing is known.

        On nodes that differ, so many that it fits on whichever it comes to. All that it may be
        divided over where it fits on none: the engine says then what it lacks. An engine that has
        `now` GPUs keeps them while that is a choice, None for one that is new. A draft whose size
        is not known counts for nothing.
        """
        key = wish.name.version_id, cluster.id
        if key not in self._choices:
            self._choices[key] = self._choices_of(wish, cluster)
        found = self._choices[key]
        return now if now in found else max(found)

    def _choices_of(self, wish: EngineWish, cluster: clusters_pb2.Cluster) -> set[int]:
        """The fewest GPUs on each kind of node that could hold a model."""
        least = _least_gpus(cluster.capacity, wish) if wish.accelerator else 0
        rooms = [room for room in self.rooms(wish, cluster).rooms if room.gpus]
        if wish.name.footprint is None or wish.kind not in DIVIDE or not rooms:
            return {least}
        tried = [self._fewest_of(wish, wish.name.footprint, room) for room in rooms]
        fitting = [number for number, fits in tried if fits]
        usual = max(1, cluster.capacity.each_engine.gpus)
        return {number if number > usual else least for number in fitting or [max(tried)[0]]}

    def _fewest_of(self, wish: EngineWish, model: Footprint, room: NodeRoom) -> tuple[int, bool]:
        key = wish.name.version_id, room
        if key not in self._fewest:
            self._fewest[key] = _fewest(wish, model, room, self._max_adapters)
        return self._fewest[key]

    def _need(self, wish: EngineWish, *, on_cpus: bool) -> LeastNeed | None:
        key = wish.name.version_id, on_cpus
        if wish.name.footprint is None:
            return None
        if key not in self._needs:
            self._needs[key] = least_need(
                wish.name.footprint,
                arguments=wish.arguments,
                draft=wish.draft.footprint if wish.draft else None,
                width=_width(wish, on_cpus=on_cpus),
            )
        return self._needs[key]


def rooms_of(cluster: clusters_pb2.Cluster, wish: EngineWish) -> tuple[NodeRoom, ...]:
    """The rooms that engines may come to; none where that of one is not known."""
    capacity = cluster.capacity
    if capacity.node_shapes:
        return _of_nodes(capacity, wish)
    if cluster.executor == KUBERNETES:
        return ()
    memory = sorted((one.memory_bytes for one in capacity.devices), reverse=True)
    if memory:
        return (NodeRoom(tuple(memory), capacity.memory_bytes),) if all(memory) else ()
    if capacity.gpus or not capacity.memory_bytes:
        return ()
    return (NodeRoom((), _given(capacity.memory_bytes, wish)),)


def _is_without_gpus(cluster: clusters_pb2.Cluster, wish: EngineWish) -> bool:
    capacity = cluster.capacity
    if capacity.node_shapes:
        return not _least_gpus(capacity, wish)
    return cluster.executor != KUBERNETES and not (capacity.gpus or capacity.devices)


def _fewest(wish: EngineWish, model: Footprint, room: NodeRoom, adapters: int) -> tuple[int, bool]:
    """The fewest GPUs of a node, and whether it fits on them."""
    draft = wish.draft.footprint if wish.draft else None
    # Whether it fits, and not how long its context may be, which takes longer to find.
    context = wish.arguments.context_length or LEAST_CONTEXT
    arguments = wish.arguments.model_copy(update={"context_length": context})
    number, most = 1, 1
    while number <= len(room.gpus):
        if not any(one.heads % number for one in (model, draft) if one):
            most = number
            try:
                fit(
                    model,
                    devices=number,
                    memory_bytes=room.gpus[number - 1],
                    arguments=arguments,
                    adapters=adapters,
                    draft=draft,
                )
                return number, True
            except DoesNotFit:
                pass
        number *= 2
    return most, False


def _too_big(need: LeastNeed, found: ClusterRooms, wish: EngineWish) -> str:
    cache = (
        f", the keys and values of {need.tokens} tokens {_gib(need.cache_bytes)}"
        if need.cache_bytes
        else ""
    )
    of_draft = (
        f" Of the weights, {_gib(need.draft_bytes)} are its draft's." if need.draft_bytes else ""
    )
    what = "GPU memory" if found.rooms[0].gpus else "memory"
    over = f" on each of {wish.nodes} nodes" if wish.nodes > 1 else ""
    return (
        f"The weights take {_gib(need.weight_bytes)}{cache} and the engine at least "
        f"{_gib(need.workspace_bytes)}; an engine would have {_gib(found.most)} of {what}{over} in "
        f"the largest live cluster.{of_draft}"
    )


def _width(wish: EngineWish, *, on_cpus: bool) -> int:
    """The bytes of each weight in the engine's memory."""
    if wish.kind == "llamacpp":
        return 2
    if wish.kind == "builtin" and on_cpus and wish.arguments.dtype in (None, "auto"):
        return 4
    return weight_width(wish.arguments)


def _lack(cluster: clusters_pb2.Cluster, wish: EngineWish) -> str:
    """Returns which need of an engine a cluster can never meet; empty if it may meet each."""
    capacity, on_nodes = cluster.capacity, cluster.executor == KUBERNETES
    if on_nodes and wish.priority not in (NORMAL_PRIORITY, *capacity.engine_priorities):
        return f"No live cluster has a class of Kueue for the priority {wish.priority!r}."
    if on_nodes and wish.memory_bytes and not capacity.HasField("each_engine"):
        return "No live cluster's agent gives engines the memory that they ask for; update it."
    shapes = _shapes(capacity, wish)
    products = {one.product for one in capacity.devices}
    if wish.accelerator and not shapes and products != {wish.accelerator}:
        return f"No live cluster has the accelerator {wish.accelerator!r}."
    most = max((one.devices for one in shapes), default=0)
    if 0 < most < wish.gpus:
        return f"Each engine should have {wish.gpus} GPUs on a node; the largest node has {most}."
    memory = [one.memory_bytes for one in shapes]
    if not capacity.node_shapes and not on_nodes:
        memory = [capacity.memory_bytes]
    if memory and all(memory) and wish.memory_bytes > max(memory):
        return (
            f"Each engine should have {_gib(wish.memory_bytes)} of memory; the largest machine or "
            f"node has {_gib(max(memory))}."
        )
    return ""


def _shapes(capacity: clusters_pb2.Capacity, wish: EngineWish) -> list[clusters_pb2.NodeShape]:
    """The nodes that an engine may come to, by its accelerator."""
    wanted = wish.accelerator
    return [
        one
        for one in capacity.node_shapes
        if not wanted or wanted in (one.resource, one.product, *one.flavors)
    ]


def _least_gpus(capacity: clusters_pb2.Capacity, wish: EngineWish) -> int:
    """The GPUs that an engine asks for at the least."""
    return wish.gpus or max(capacity.each_engine.gpus, 1 if wish.accelerator else 0)


def _given(memory: int, wish: EngineWish) -> int:
    """The memory of an engine without GPUs where a machine or node has so much."""
    return min(memory, wish.memory_bytes or memory)


def _of_nodes(capacity: clusters_pb2.Capacity, wish: EngineWish) -> tuple[NodeRoom, ...]:
    shapes, gpus = _shapes(capacity, wish), _least_gpus(capacity, wish)
    if gpus:
        shapes = [one for one in shapes if one.devices >= gpus]
        found = {_with_gpus(one) for one in shapes}
        known = all(one.device_memory_bytes for one in shapes)
    else:
        found = {NodeRoom((), _given(one.memory_bytes, wish)) for one in shapes}
        known = all(one.memory_bytes for one in shapes)
    return tuple(sorted(found, key=lambda one: (one.gpus, one.memory_bytes))) if known else ()


def _with_gpus(shape: clusters_pb2.NodeShape) -> NodeRoom:
    # Parts of a GPU do not talk to one another, so that nothing is divided over them.
    number = 1 if _PARTS in shape.resource else min(shape.devices, MAX_ENGINE_GPUS)
    return NodeRoom((shape.device_memory_bytes,) * number, shape.memory_bytes)


def _gib(number: int) -> str:
    return f"{number / GIB:.1f} GiB"
