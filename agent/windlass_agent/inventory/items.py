"""The whole inventory, by key."""

from collections.abc import Iterator, Mapping

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.inventory.devices import class_states, node_devices
from windlass_agent.inventory.nodes import node_state
from windlass_agent.inventory.pods import Usage, usage_by_node
from windlass_agent.inventory.watched import Watched
from windlass_agent.kueue import reading

Keyed = tuple[str, pb.InventoryItem]
_NO_USAGE = Usage.none()


def inventory_items(watched: Watched) -> dict[str, pb.InventoryItem]:
    """What the mirrors hold now; what matters most comes first."""
    usage = usage_by_node(watched.pods.items.values())
    found = dict(_missing(watched))
    found.update(_queues(watched))
    found.update(_devices(watched))
    found.update(_waiting(usage))
    found.update(_nodes(watched, usage))
    found.update(_local_queues(watched))
    return found


def _missing(watched: Watched) -> Iterator[Keyed]:
    for name, sentence in watched.missing().items():
        yield f"missing/{name}", pb.InventoryItem(key=f"missing/{name}", missing=sentence)


def _queues(watched: Watched) -> Iterator[Keyed]:
    for name, item in watched.cluster_queues.items.items():
        key = f"cluster_queue/{name}"
        yield key, pb.InventoryItem(key=key, cluster_queue=reading.cluster_queue(item))
    for name, item in watched.flavors.items.items():
        key = f"flavor/{name}"
        yield key, pb.InventoryItem(key=key, flavor=reading.flavor(item))
    for name, item in watched.cohorts.items.items():
        key = f"cohort/{name}"
        yield key, pb.InventoryItem(key=key, cohort=reading.cohort(item))
    for name, item in watched.priority_classes.items.items():
        key = f"priority_class/{name}"
        yield key, pb.InventoryItem(key=key, priority_class=reading.priority_class(item))


def _local_queues(watched: Watched) -> Iterator[Keyed]:
    for name, item in watched.local_queues.items.items():
        key = f"local_queue/{name}"
        yield key, pb.InventoryItem(key=key, local_queue=reading.local_queue(item))


def _devices(watched: Watched) -> Iterator[Keyed]:
    states = class_states(
        watched.device_classes.items, watched.slices.items.values(), watched.claims.items.values()
    )
    for name, state in states.items():
        key = f"device_class/{name}"
        yield key, pb.InventoryItem(key=key, device_class=state)


def _waiting(usage: Mapping[str, Usage]) -> Iterator[Keyed]:
    for resource, count in usage.get("", _NO_USAGE).pending.items():
        key = f"pending/{resource}"
        wanted = pb.Accelerator(resource=resource, pending=count)
        yield key, pb.InventoryItem(key=key, device_class=wanted)


def _nodes(watched: Watched, usage: Mapping[str, Usage]) -> Iterator[Keyed]:
    devices = node_devices(watched.device_classes.items, watched.slices.items.values())
    for name, node in watched.nodes.items.items():
        state = node_state(name, node, usage.get(name, _NO_USAGE))
        state.accelerators.extend(devices.get(name, ()))
        yield f"node/{name}", pb.InventoryItem(key=f"node/{name}", node=state)
