"""Shapes of nodes: what one engine finds on a node, alike nodes counted together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.inventory.accelerators import product, product_label
from windlass_agent.inventory.nodes import Node, node_state

# Of a cluster, and of flavors of each.
MAX_SHAPES, MAX_FLAVORS = 64, 8
# Without the node's own memory, which differs a little between nodes of one type.
_Shape = tuple[str, str, int, int, tuple[str, ...]]


def node_shapes(
    nodes: Mapping[str, Node],
    claimed: Mapping[str, Sequence[pb.Accelerator]],
    flavors: Mapping[str, Mapping[str, Any]],
    known: Collection[str],
) -> list[pb.NodeShape]:
    """The shapes of a cluster's nodes, those with most memory first.

    The memory of a shape is that of its largest node. `claimed` are the devices of classes by
    node, `flavors` are Kueue's ResourceFlavors, and `known` the resources and device classes that
    pods of the agent ask for.
    """
    labels = {name: _labels(item) for name, item in flavors.items()}
    memory: dict[_Shape, list[int]] = {}
    for name, node in nodes.items():
        state = node_state(name, node)
        state.accelerators.extend(claimed.get(name, ()))
        for shape in _shapes(state, _flavors(node, labels), known):
            memory.setdefault(shape, []).append(state.memory_bytes)
    found = [_message(shape, each) for shape, each in memory.items()]
    found.sort(key=_size, reverse=True)
    return found[:MAX_SHAPES]


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Request of pods for an accelerator by its name: a resource or class, and labels of nodes."""

    resource: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def node_choice(
    name: str,
    nodes: Mapping[str, Node],
    flavors: Mapping[str, Mapping[str, Any]],
    known: Collection[str],
) -> NodeChoice | None:
    """The choice that a name of `node_shapes` stands for; None for a name of none."""
    if name in known:
        return NodeChoice(resource=name)
    if name in flavors and (labels := _labels(flavors[name])):
        return NodeChoice(labels=labels)
    for node in nodes.values():
        for resource, _, _ in node.accelerators:
            if resource in known and product(resource, node.labels) == name:
                return NodeChoice(resource, {product_label(resource, node.labels): name})
    return None


def _shapes(
    node: pb.NodeState, flavors: tuple[str, ...], known: Collection[str]
) -> Iterator[_Shape]:
    has = [one for one in node.accelerators if one.resource in known and one.allocatable > 0]
    for one in has or [pb.Accelerator()]:
        yield (
            one.resource,
            # Of claimed devices no node's label says it.
            "" if one.is_device_class else one.product,
            min(one.allocatable, 2**31 - 1),
            one.memory_bytes,
            flavors,
        )


def _flavors(node: Node, flavors: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """The flavors whose labels a node has, without those that ask for none."""
    of = [name for name, asked in flavors.items() if asked and asked.items() <= node.labels.items()]
    return tuple(sorted(of)[:MAX_FLAVORS])


def _labels(flavor: Mapping[str, Any]) -> Mapping[str, str]:
    return (flavor.get("spec") or {}).get("nodeLabels") or {}


def _message(shape: _Shape, memory: Sequence[int]) -> pb.NodeShape:
    resource, product, devices, device_memory, flavors = shape
    return pb.NodeShape(
        resource=resource,
        product=product,
        devices=devices,
        device_memory_bytes=device_memory,
        memory_bytes=max(memory),
        nodes=len(memory),
        flavors=flavors,
    )


def _size(shape: pb.NodeShape) -> tuple[int, int, str, str]:
    total = shape.devices * shape.device_memory_bytes
    return total, shape.memory_bytes, shape.resource, shape.product
