"""A node, and how much of it is in use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.quantities import millis, units
from windlass_agent.inventory.accelerators import (
    accelerators_among,
    device_memory,
    product,
    replicas,
)
from windlass_agent.inventory.pods import NodeUsage

MAX_LABELS = 48
# Hundreds per node that nobody selects by, and one that changes by the minute.
_DROPPED = ("feature.node.kubernetes.io/", "beta.kubernetes.io/", "nvidia.com/gfd.timestamp")
_NO_USAGE = NodeUsage.none()


@dataclass(frozen=True, slots=True)
class Node:
    """State of one node; `accelerators` are (resource, capacity, allocatable)."""

    ready: bool
    schedulable: bool
    labels: Mapping[str, str]
    cpu_millis: int
    memory_bytes: int
    accelerators: tuple[tuple[str, int, int], ...]


def trim_node(node: Mapping[str, Any]) -> Node:
    """Returns its readiness, its labels but for useless ones, and what it offers."""
    status = node.get("status") or {}
    capacity = status.get("capacity") or {}
    allocatable = status.get("allocatable") or {}
    conditions = status.get("conditions") or ()
    labels = (node.get("metadata") or {}).get("labels") or {}
    return Node(
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        schedulable=not (node.get("spec") or {}).get("unschedulable", False),
        labels=_telling(labels),
        cpu_millis=millis(allocatable.get("cpu")),
        memory_bytes=units(allocatable.get("memory")),
        accelerators=tuple(
            (name, units(capacity.get(name)), units(allocatable.get(name)))
            for name in accelerators_among({**capacity, **allocatable})
        ),
    )


def node_state(name: str, node: Node, usage: NodeUsage = _NO_USAGE) -> pb.NodeState:
    """The state of a node, for the control plane."""
    return pb.NodeState(
        name=name,
        ready=node.ready,
        schedulable=node.schedulable,
        labels=node.labels,
        cpu_millis=node.cpu_millis,
        memory_bytes=node.memory_bytes,
        cpu_millis_used=usage.cpu_millis,
        memory_bytes_used=usage.memory_bytes,
        accelerators=[
            pb.Accelerator(
                resource=resource,
                product=product(resource, node.labels),
                replicas=replicas(resource, node.labels),
                memory_bytes=device_memory(resource, node.labels),
                capacity=capacity,
                allocatable=allocatable,
                running=usage.running.get(resource, 0),
                pending=usage.pending.get(resource, 0),
            )
            for resource, capacity, allocatable in node.accelerators
        ],
    )


def _telling(labels: Mapping[str, str]) -> dict[str, str]:
    kept = sorted(name for name in labels if not name.startswith(_DROPPED))
    # A maker's labels say what the hardware is; where there are too many, others yield.
    kept.sort(key=lambda name: not _is_hardware(name))
    return {name: labels[name] for name in kept[:MAX_LABELS]}


def _is_hardware(label: str) -> bool:
    domain = label.partition("/")[0]
    return domain.endswith(("nvidia.com", "amd.com", "intel.com", "google.com", "amazonaws.com"))
