"""Shapes of nodes: what one engine finds on a node, alike nodes counted together."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.inventory.nodes import Node, node_state

# Of a cluster, and of flavors of each.
MAX_SHAPES, MAX_FLAVORS = 64, 8
_Shape = tuple[str, str, int, int, int, tuple[str, ...]]


def node_shapes(
    nodes: Mapping[str, Node],
    claimed: Mapping[str, Sequence[pb.Accelerator]],
    flavors: Mapping[str, Mapping[str, Any]],
    known: Collection[str],
) -> list[pb.NodeShape]:
    """The shapes of a cluster's nodes, those with most memory first.

    `claimed` are the devices of classes by node, `flavors` are Kueue's ResourceFlavors, and `known`
    the resources and device classes that pods of the agent ask for.
    """
    labels = {name: _labels(item) for name, item in flavors.items()}
    counted: Counter[_Shape] = Counter()
    for name, node in nodes.items():
        state = node_state(name, node)
        state.accelerators.extend(claimed.get(name, ()))
        counted.update(_shapes(state, _flavors(node, labels), known))
    found = [_message(shape, count) for shape, count in counted.items()]
    found.sort(key=_size, reverse=True)
    return found[:MAX_SHAPES]


def _shapes(
    node: pb.NodeState, flavors: tuple[str, ...], known: Collection[str]
) -> Iterator[_Shape]:
    has = [one for one in node.accelerators if one.resource in known and one.allocatable > 0]
    for one in has or [pb.Accelerator()]:
        yield (
            one.resource,
            one.product,
            min(one.allocatable, 2**31 - 1),
            one.memory_bytes,
            node.memory_bytes,
            flavors,
        )


def _flavors(node: Node, flavors: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """The flavors whose nodes have all of their labels, as this one does."""
    of = [name for name, labels in flavors.items() if labels.items() <= node.labels.items()]
    return tuple(sorted(of)[:MAX_FLAVORS])


def _labels(flavor: Mapping[str, Any]) -> Mapping[str, str]:
    return (flavor.get("spec") or {}).get("nodeLabels") or {}


def _message(shape: _Shape, count: int) -> pb.NodeShape:
    resource, product, devices, device_memory, memory, flavors = shape
    return pb.NodeShape(
        resource=resource,
        product=product,
        devices=devices,
        device_memory_bytes=device_memory,
        memory_bytes=memory,
        nodes=count,
        flavors=flavors,
    )


def _size(shape: pb.NodeShape) -> tuple[int, int, str, str]:
    total = shape.devices * shape.device_memory_bytes
    return total, shape.memory_bytes, shape.resource, shape.product
