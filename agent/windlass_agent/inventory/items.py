"""The whole inventory, by key."""

from collections.abc import Iterator, Mapping

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.inventory.devices import class_states, node_devices
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.nodes import node_state
from windlass_agent.inventory.pods import NodeUsage, usage_by_node
from windlass_agent.kueue import reading

Keyed = tuple[str, pb.InventoryItem]
_NO_USAGE = NodeUsage.none()


def inventory_items(informers: ClusterInformers) -> dict[str, pb.InventoryItem]:
    """The items that the informers hold now, the most important first."""
    usage = usage_by_node(informers.pods.items.values())
    found = dict(_missing(informers))
    found.update(_queues(informers))
    found.update(_devices(informers))
    found.update(_waiting(usage))
    found.update(_nodes(informers, usage))
    found.update(_local_queues(informers))
    return found


def _missing(informers: ClusterInformers) -> Iterator[Keyed]:
    for name, sentence in informers.missing().items():
        yield f"missing/{name}", pb.InventoryItem(key=f"missing/{name}", missing=sentence)


def _queues(informers: ClusterInformers) -> Iterator[Keyed]:
    for name, item in informers.cluster_queues.items.items():
        key = f"cluster_queue/{name}"
        yield key, pb.InventoryItem(key=key, cluster_queue=reading.cluster_queue(item))
    for name, item in informers.flavors.items.items():
        key = f"flavor/{name}"
        yield key, pb.InventoryItem(key=key, flavor=reading.flavor(item))
    for name, item in informers.cohorts.items.items():
        key = f"cohort/{name}"
        yield key, pb.InventoryItem(key=key, cohort=reading.cohort(item))
    for name, item in informers.priority_classes.items.items():
        key = f"priority_class/{name}"
        yield key, pb.InventoryItem(key=key, priority_class=reading.priority_class(item))


def _local_queues(informers: ClusterInformers) -> Iterator[Keyed]:
    for name, item in informers.local_queues.items.items():
        key = f"local_queue/{name}"
        yield key, pb.InventoryItem(key=key, local_queue=reading.local_queue(item))


def _devices(informers: ClusterInformers) -> Iterator[Keyed]:
    states = class_states(
        informers.device_classes.items,
        informers.slices.items.values(),
        informers.claims.items.values(),
    )
    for name, state in states.items():
        key = f"device_class/{name}"
        yield key, pb.InventoryItem(key=key, device_class=state)


def _waiting(usage: Mapping[str, NodeUsage]) -> Iterator[Keyed]:
    for resource, count in usage.get("", _NO_USAGE).pending.items():
        key = f"pending/{resource}"
        wanted = pb.Accelerator(resource=resource, pending=count)
        yield key, pb.InventoryItem(key=key, device_class=wanted)


def _nodes(informers: ClusterInformers, usage: Mapping[str, NodeUsage]) -> Iterator[Keyed]:
    devices = node_devices(informers.device_classes.items, informers.slices.items.values())
    for name, node in informers.nodes.items.items():
        state = node_state(name, node, usage.get(name, _NO_USAGE))
        state.accelerators.extend(devices.get(name, ()))
        yield f"node/{name}", pb.InventoryItem(key=f"node/{name}", node=state)
