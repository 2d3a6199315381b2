"""Resource requests of pods, counted as placement counts; pure."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from windlass.api.jobs.v1 import jobs_pb2
from windlass.kubernetes.quantities import millis

_INT32 = 2**31 - 1
_INT64 = 2**62
GPUS = "gpus"


@dataclass(slots=True)
class Amounts:
    """A sum over pods."""

    pods: int = 0
    total: Counter[str] = field(default_factory=Counter)

    def add(self, each: Counter[str], pods: int) -> None:
        """Adds so many pods, in thousandths of each resource."""
        self.pods += pods
        for name, amount in each.items():
            self.total[name] += amount * pods

    def resources(self) -> jobs_pb2.Resources:
        """Returns the total in whole units, rounded up."""
        units = {name: -(-amount // 1000) for name, amount in self.total.items()}
        return jobs_pb2.Resources(
            gpus=min(units.get(GPUS, 0), _INT32),
            cpus=min(units.get("cpu", 0), _INT32),
            memory_bytes=min(units.get("memory", 0), _INT64),
        )


def asked_by(pod: dict[str, Any]) -> Counter[str]:
    """The requests of one pod in thousandths: of its containers, else their limits."""
    asked: Counter[str] = Counter()
    for container in pod.get("containers") or ():
        resources = container.get("resources") or {}
        wanted = (resources.get("limits") or {}) | (resources.get("requests") or {})
        for name, value in wanted.items():
            kind = GPUS if "/" in name else name
            # What is no quantity, or less than nothing, the cluster will refuse.
            asked[kind] += max(0, millis(str(value)))
    return asked
