"""Devices of Dynamic Resource Allocation: what slices offer of each class, and who claims it.

A DeviceClass selects by expressions in CEL. Those that matter compare the driver or an
attribute with a constant, joined by `&&`; what else an expression says is taken to hold, so
a class may be shown larger than it is, never smaller.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.quantities import units

Value = str | int | bool
# Attributes by which classes tell devices apart; uuids and addresses would only take memory.
_TELLING = frozenset({"type", "model", "productName", "brand", "family", "architecture"})
_PRODUCT = ("productName", "model")
_LITERAL = r"""(?:"([^"]*)"|'([^']*)'|(\d+)|(true|false))"""
_DRIVER = re.compile(rf"\s*device\.driver\s*==\s*{_LITERAL}\s*")
_ATTRIBUTE = re.compile(
    rf"""\s*device\.attributes\[["']([^"']+)["']\]\.(\w+)\s*==\s*{_LITERAL}\s*"""
)


@dataclass(frozen=True, slots=True)
class Slice:
    """Devices of one driver's pool: how many there are with the same telling attributes."""

    driver: str
    pool: str
    generation: int
    node: str
    # By their attributes and the bytes of their memory, 0 where it is not said.
    devices: tuple[tuple[frozenset[tuple[str, Value]], int, int], ...]


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Requirements of a DeviceClass; None for a selector that states none."""

    driver: str | None
    attributes: tuple[tuple[str, Value], ...]

    def takes(self, driver: str, attributes: frozenset[tuple[str, Value]]) -> bool:
        """Returns True if a device may be one of this class."""
        if self.driver not in (None, driver):
            return False
        known = dict(attributes)
        return all(known.get(name, wanted) == wanted for name, wanted in self.attributes)


@dataclass(frozen=True, slots=True)
class Claim:
    """Devices that one ResourceClaim wants or, once allocated, has; by class."""

    allocated: bool
    devices: tuple[tuple[str, int], ...]
    # By class and name, those that it has a part of: other claims may have the rest.
    shared: frozenset[tuple[str, str]] = frozenset()


def trim_slice(item: Mapping[str, Any]) -> Slice:
    """The slice with the number of its alike devices."""
    spec = item["spec"]
    driver, pool = spec["driver"], spec["pool"]
    alike = Counter(
        (frozenset(_attributes(driver, device.get("attributes") or {})), _memory(device))
        for device in spec.get("devices") or ()
    )
    return Slice(
        driver=driver,
        pool=pool["name"],
        generation=pool.get("generation", 0),
        node=spec.get("nodeName", ""),
        devices=tuple((*key, count) for key, count in alike.items()),
    )


def trim_class(item: Mapping[str, Any]) -> DeviceClass:
    """The values that its expressions compare."""
    driver: str | None = None
    attributes: list[tuple[str, Value]] = []
    for selector in item["spec"].get("selectors") or ():
        expression = (selector.get("cel") or {}).get("expression", "")
        # Within an alternative nothing is certain.
        for term in expression.split("&&") if "||" not in expression else ():
            if match := _DRIVER.fullmatch(term):
                driver = str(_literal(match.groups()))
            elif match := _ATTRIBUTE.fullmatch(term):
                domain, name, *literal = match.groups()
                if name in _TELLING:
                    attributes.append((f"{domain}/{name}", _literal(literal)))
    return DeviceClass(driver, tuple(attributes))


def trim_claim(item: Mapping[str, Any]) -> Claim | None:
    """Returns the devices that a claim wants, by class; None for one that wants none."""
    classes: dict[str, str] = {}
    devices: Counter[str] = Counter()
    for request in (item["spec"].get("devices") or {}).get("requests") or ():
        choices = _choices(request)
        classes.update((name, choice["deviceClassName"]) for name, choice in choices)
        # Of a request with alternatives, the first is what is wanted.
        for _, choice in choices[:1]:
            devices[choice["deviceClassName"]] += choice.get("count", 1)
    allocation = (item.get("status") or {}).get("allocation")
    if allocation is None:
        return Claim(False, tuple(sorted(devices.items()))) if devices else None
    results = [
        (classes[result["request"]], result)
        for result in (allocation.get("devices") or {}).get("results") or ()
        if result["request"] in classes and not result.get("adminAccess")
    ]
    whole = Counter(name for name, result in results if not result.get("shareID"))
    shared = frozenset((name, _device(result)) for name, result in results if result.get("shareID"))
    return Claim(True, tuple(sorted(whole.items())), shared) if results else None


def class_states(
    classes: Mapping[str, DeviceClass], slices: Iterable[Slice], claims: Iterable[Claim]
) -> dict[str, pb.Accelerator]:
    """The devices of each class in the whole cluster, and how many have a holder.

    A device of which several have a part counts once.
    """
    current = newest(slices)
    running: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    shared: set[tuple[str, str]] = set()
    for claim in claims:
        (running if claim.allocated else pending).update(dict(claim.devices))
        shared |= claim.shared
    running.update(name for name, _ in shared)
    states = {name: _offer(name, class_, current) for name, class_ in classes.items()}
    for name, state in states.items():
        state.running, state.pending = running[name], pending[name]
    return states


def node_devices(
    classes: Mapping[str, DeviceClass], slices: Iterable[Slice]
) -> dict[str, list[pb.Accelerator]]:
    """The devices of each class on single nodes, without those that are no one node's."""
    by_node: dict[str, list[Slice]] = {}
    for slice_ in newest(slices):
        if slice_.node:
            by_node.setdefault(slice_.node, []).append(slice_)
    return {
        node: [
            offer
            for name, class_ in sorted(classes.items())
            if (offer := _offer(name, class_, its)).capacity
        ]
        for node, its in by_node.items()
    }


def newest(slices: Iterable[Slice]) -> list[Slice]:
    """Returns the slices of each pool's newest generation: drivers delete older ones late."""
    found = list(slices)
    generations: dict[tuple[str, str], int] = {}
    for one in found:
        key = (one.driver, one.pool)
        generations[key] = max(generations.get(key, 0), one.generation)
    return [one for one in found if one.generation == generations[one.driver, one.pool]]


def _offer(name: str, class_: DeviceClass, slices: Iterable[Slice]) -> pb.Accelerator:
    count = 0
    products: set[str] = set()
    memories: set[int] = set()
    for slice_ in slices:
        for attributes, memory, alike in slice_.devices:
            if class_.takes(slice_.driver, attributes):
                count += alike
                products.add(_product(attributes))
                memories.add(memory)
    return pb.Accelerator(
        resource=name,
        product=products.pop() if len(products) == 1 else "",
        memory_bytes=memories.pop() if len(memories) == 1 else 0,
        capacity=count,
        allocatable=count,
        is_device_class=True,
    )


def _device(result: Mapping[str, Any]) -> str:
    """The name of an allocated device, the same for all who have a part of it."""
    return "/".join(str(result[part]) for part in ("driver", "pool", "device"))


def _memory(device: Mapping[str, Any]) -> int:
    """Bytes of a device's memory by its capacity; 0 where its driver does not say."""
    capacity = device.get("capacity") or {}
    said = (value for name, value in capacity.items() if name.rpartition("/")[2] == "memory")
    return max(0, units((next(said, None) or {}).get("value")))


def _attributes(driver: str, attributes: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in attributes.items():
        domain, _, short = name.rpartition("/")
        if short in _TELLING:
            yield f"{domain or driver}/{short}", next(iter(value.values()))


def _product(attributes: frozenset[tuple[str, Value]]) -> str:
    known = {name.rpartition("/")[2]: str(value) for name, value in attributes}
    return next((known[name] for name in _PRODUCT if name in known), "")


def _literal(groups: Iterable[str | None]) -> Value:
    double, single, number, boolean = groups
    if number is not None:
        return int(number)
    if boolean is not None:
        return boolean == "true"
    return double if double is not None else single or ""


def _choices(request: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """A request's classes in the order of preference, by the name that results give them."""
    if exactly := request.get("exactly"):
        return [(request["name"], exactly)]
    choices = request.get("firstAvailable") or ()
    return [(f"{request['name']}/{choice['name']}", choice) for choice in choices]
