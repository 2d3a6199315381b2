"""What pods ask for, counted as placement counts; pure."""

import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

from windlass.api.jobs.v1 import jobs_pb2

_QUANTITY = re.compile(r"(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)")
_FACTORS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{letter: Fraction(10 ** (3 * power)) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
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
        """In whole units, rounded up."""
        units = {name: -(-amount // 1000) for name, amount in self.total.items()}
        return jobs_pb2.Resources(
            gpus=min(units.get(GPUS, 0), _INT32),
            cpus=min(units.get("cpu", 0), _INT32),
            memory_bytes=min(units.get("memory", 0), _INT64),
        )


def asked_by(pod: dict[str, Any]) -> Counter[str]:
    """What one pod asks for, in thousandths: what its containers request, else their limits."""
    asked: Counter[str] = Counter()
    for container in pod.get("containers") or ():
        resources = container.get("resources") or {}
        wanted = (resources.get("limits") or {}) | (resources.get("requests") or {})
        for name, value in wanted.items():
            kind = GPUS if "/" in name else name
            asked[kind] += ceil(_quantity(str(value)) * 1000)
    return asked


def _quantity(text: str) -> Fraction:
    """A quantity of Kubernetes; 0 for what is none, which the cluster will refuse."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return Fraction(0)
    digits, exponent, suffix = match.groups()
    if exponent:
        return Fraction(digits) * Fraction(10) ** int(exponent)
    return Fraction(digits) * _FACTORS[suffix or ""]
