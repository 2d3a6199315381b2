"""A measured figure, its goal, and the file that remembers every one."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench import machine

LOG = Path(__file__).resolve().parents[2] / "build" / "bench.jsonl"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table. A figure without a goal explains another; `met` is then None."""

    name: str
    value: float
    unit: str
    goal: str = ""
    met: bool | None = None
    peer: str = ""
    peer_value: float | None = None
    ratio: float | None = None

    def beside(self, peer: str, value: float) -> "Figure":
        """The same with what a peer did in the same run; the ratio is ours to theirs."""
        return replace(self, peer=peer, peer_value=value, ratio=self.value / value)

    def at_most_times(self, bound: float) -> "Figure":
        """The same with a goal: at most so many times what the peer did."""
        return replace(self, goal=f"≤ {bound:g} x peer", met=(self.ratio or 0) <= bound)

    def at_least_times(self, bound: float) -> "Figure":
        """The same with a goal: at least so many times what the peer did."""
        return replace(self, goal=f"≥ {bound:g} x peer", met=(self.ratio or 0) >= bound)


def at_most(name: str, value: float, unit: str, bound: float) -> Figure:
    """A figure that should be small."""
    return Figure(name=name, value=value, unit=unit, goal=f"≤ {bound:g}", met=value <= bound)


def at_least(name: str, value: float, unit: str, bound: float) -> Figure:
    """A figure that should be large."""
    return Figure(name=name, value=value, unit=unit, goal=f"≥ {bound:g}", met=value >= bound)


def plain(name: str, value: float, unit: str) -> Figure:
    """A figure without a goal."""
    return Figure(name=name, value=value, unit=unit)


@dataclass(frozen=True)
class Options:
    """Duration of measurements; `quick` checks that a script works, its figures prove little."""

    quick: bool = False
    pairs: int = 5


def record(figures: Iterable[Figure], *, options: Options, busy: float) -> None:
    """Appends figures to the log; `busy` is how many cores others used before the run."""
    where = {
        "machine": machine.description(),
        "date": machine.now(),
        "commit": machine.commit(),
        "busy_before": round(busy, 2),
        "quick": options.quick,
    }
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a") as log:
        for figure in figures:
            log.write(json.dumps(asdict(figure) | where, ensure_ascii=False) + "\n")


def newest() -> list[dict[str, Any]]:
    """The newest line of each name, in the order of their first appearance."""
    lines: dict[str, dict[str, Any]] = {}
    if LOG.exists():
        for text in LOG.read_text().splitlines():
            line = json.loads(text)
            # A whole run is worth more than a quick one that came later.
            if not line["quick"] or lines.get(line["name"], line)["quick"]:
                lines[line["name"]] = line
    return list(lines.values())
