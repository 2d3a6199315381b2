"""A pod, as far as it takes something of the cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from windlass.kubernetes.quantities import amount
from windlass_agent.inventory.accelerators import family_of

Requests = Mapping[str, int]
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class PodRequests:
    """Requests of one pod, and the node they count against.

    `node` is the one that it is bound to or, before that, the one that the scheduler empties
    for it; it may be empty. `bound` pods hold what they ask for; of these, `started` ones run.
    """

    node: str
    bound: bool
    started: bool
    cpu_millis: int
    memory_bytes: int
    accelerators: tuple[tuple[str, int], ...]


def trim_pod(pod: Mapping[str, Any]) -> PodRequests | None:
    """Returns what a pod requests; None for one that has ended and holds nothing."""
    status = pod.get("status") or {}
    phase = status.get("phase", "Pending")
    if phase in _ENDED:
        return None
    spec = pod.get("spec") or {}
    bound = spec.get("nodeName", "")
    wanted = requests(spec)
    return PodRequests(
        node=bound or status.get("nominatedNodeName", ""),
        bound=bool(bound),
        started=bool(bound) and phase == "Running",
        cpu_millis=wanted.get("cpu", 0),
        memory_bytes=wanted.get("memory", 0),
        accelerators=_shared(
            tuple(sorted((name, count) for name, count in wanted.items() if _counts(name, count)))
        ),
    )


def requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """The requests of a pod for the scheduler: the most that its containers need at one time.

    That is the sum of containers and sidecars or, if larger, an init container beside the
    sidecars before it; requests of the whole pod win; overhead comes on top.
    """
    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        its = _asked(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, its)
            _raise_to(most, sidecars)
        else:
            _raise_to(most, _sum(sidecars, its))
    together = _sum(sidecars, *map(_asked, spec.get("containers") or ()))
    _raise_to(most, together)
    most.update(_asked(spec))
    _add(most, _amounts(spec.get("overhead")))
    return most


def _asked(owner: Mapping[str, Any]) -> Requests:
    resources = owner.get("resources") or {}
    # Who names only a limit asks for it; the API server fills that in, but not for overlays.
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(resources: Mapping[str, Any] | None) -> Requests:
    return {
        name: amount(name, value)
        for name, value in (resources or {}).items()
        if name in ("cpu", "memory") or family_of(name)
    }


def _counts(name: str, count: int) -> bool:
    return count > 0 and name not in ("cpu", "memory")


def _sum(*parts: Requests) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        _add(total, part)
    return total


def _add(total: dict[str, int], part: Requests) -> None:
    for name, count in part.items():
        total[name] = total.get(name, 0) + count


def _raise_to(most: dict[str, int], part: Requests) -> None:
    for name, count in part.items():
        most[name] = max(most.get(name, 0), count)


@lru_cache(maxsize=1024)
def _shared(accelerators: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The same object for all pods that ask for the same."""
    return accelerators


@dataclass(slots=True)
class NodeUsage:
    """Resources of one node that pods use; accelerators by resource."""

    cpu_millis: int
    memory_bytes: int
    running: dict[str, int]
    pending: dict[str, int]

    @classmethod
    def none(cls) -> "NodeUsage":
        """Usage of a node without pods."""
        return cls(0, 0, {}, {})


def usage_by_node(pods: Iterable[PodRequests]) -> dict[str, NodeUsage]:
    """The usage of pods by node; under the empty name, that of pods that wait for any.

    A pod that waits without a node is counted there, once, and not at every node that it
    might get: then the pending of all nodes and of the empty name add up to what is wanted.
    """
    found: dict[str, NodeUsage] = {}
    for pod in pods:
        usage = found.setdefault(pod.node, NodeUsage.none())
        if pod.bound:
            usage.cpu_millis += pod.cpu_millis
            usage.memory_bytes += pod.memory_bytes
        if pod.accelerators:
            _add(usage.running if pod.started else usage.pending, dict(pod.accelerators))
    return found
