"""Tables of a cluster's nodes, accelerators by allocation and queues, and of a machine's GPUs."""

from collections.abc import Iterable
from typing import Any

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field, size

_NODES = {
    "NODE": field("name"),
    "STATE": lambda item: _node_state(item),
    "CPU": lambda item: f"{item['cpu_millis_used'] / 1000:g}/{item['cpu_millis'] / 1000:g}",
    "MEMORY": lambda item: f"{_bytes(item['memory_bytes_used'])}/{_bytes(item['memory_bytes'])}",
    "ACCELERATORS": lambda item: ", ".join(map(_accelerator, item["accelerators"])),
}
_ACCELERATORS = {
    "ACCELERATOR": field("resource"),
    "PRODUCT": field("product"),
    "CAPACITY": field("capacity"),
    "ALLOCATABLE": field("allocatable"),
    "RUNNING": field("running"),
    "PENDING": field("pending"),
    "FREE": lambda item: str(
        max(0, item["allocatable"] - item["running"] - min(item["pending"], item["allocatable"]))
    ),
}
_QUEUES = {
    "QUEUE": field("name"),
    "NAMESPACE": field("namespace"),
    "BEHIND IT": field("cluster_queue"),
    "PENDING": field("pending"),
    "ADMITTED": field("admitted"),
    "STATE": lambda item: "active" if item["active"] else "stopped",
    "MESSAGE": field("message"),
}


_DEVICES = {
    "GPU": field("id"),
    "PRODUCT": field("product"),
    "MEMORY": size("memory_bytes"),
    "STATE": lambda item: "used" if item["used"] else "free",
}


def show(call: Call, cluster: Item, inventory: Item | None) -> None:
    """Prints a cluster; its inventory is None for who may not see it."""
    if inventory is None:
        _show_machine(call, cluster)
        return
    if not call.out.is_table:
        call.out.item({**cluster, "inventory": inventory})
        return
    # Its nodes follow one by one.
    capacity = cluster["capacity"] and {**cluster["capacity"], "node_shapes": None}
    call.out.item({**cluster, "capacity": capacity})
    queues = [
        *inventory["cluster_queues"],
        *inventory["local_queues"],
    ]
    tables: list[tuple[list[Item], Any]] = [
        (inventory["nodes"], _NODES),
        (list(accelerators(inventory)), _ACCELERATORS),
        (queues, _QUEUES),
    ]
    for items, columns in tables:
        if items:
            call.out.gap()
            call.out.items(items, columns)
    for what, sentence in inventory["missing"].items():
        call.out.note(f"{what}: {sentence}")


def _show_machine(call: Call, cluster: Item) -> None:
    devices = cluster["capacity"]["devices"] if cluster["capacity"] else []
    if not call.out.is_table or not devices:
        call.out.item(cluster)
        return
    call.out.item({**cluster, "capacity": {**cluster["capacity"], "devices": None}})
    call.out.gap()
    call.out.items(devices, _DEVICES)


def accelerators(inventory: Item) -> Iterable[Item]:
    """Accelerators of all nodes by resource and product, and classes of devices."""
    sums: dict[tuple[str, str], Item] = {}
    nodes = (one for node in inventory["nodes"] for one in node["accelerators"])
    for one in (*(each for each in nodes if not each["is_device_class"]),
                *inventory["device_classes"]):  # fmt: skip
        key = (one["resource"], one["product"])
        into = sums.setdefault(key, {"resource": key[0], "product": key[1]})
        for name in ("capacity", "allocatable", "running", "pending"):
            into[name] = into.get(name, 0) + one[name]
    for resource, pending in inventory["pending"].items():
        waiting = {"resource": resource, "product": "(not on a node yet)", "pending": pending}
        sums[resource, "?"] = {"capacity": 0, "allocatable": 0, "running": 0, **waiting}
    return (sums[key] for key in sorted(sums))


def _accelerator(item: Item) -> str:
    used = item["running"] + item["pending"]
    return f"{used}/{item['allocatable']} {item['product'] or item['resource']}"


def _node_state(item: Item) -> str:
    if not item["ready"]:
        return "not ready"
    return "ready" if item["schedulable"] else "cordoned"


def _bytes(number: int) -> str:
    return size("n")({"n": number})
