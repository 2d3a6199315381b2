"""Faults of a file, counted and grouped by kind."""

import re
from dataclasses import dataclass, field

from windlass.datasets.errors import DatasetError

MAX_LINES = 50
MAX_KINDS = 50
_PLACE = re.compile(r"\[\d+\]")


@dataclass
class FaultKind:
    """One kind of fault: how often it occurs, and the first lines where it does."""

    reason: str
    message: str
    param: str | None = None
    count: int = 0
    lines: list[int] = field(default_factory=list)


class Faults:
    """Faults by kind; only the first lines and kinds are kept, all are counted."""

    def __init__(self) -> None:
        self.count = 0
        self._kinds: dict[tuple[str, str], FaultKind] = {}
        self._lines = 0

    def add(self, error: DatasetError) -> None:
        """Counts a fault."""
        self.count += 1
        key = (error.reason, _PLACE.sub("[]", error.message))
        fault = self._kinds.get(key)
        if fault is None:
            if len(self._kinds) >= MAX_KINDS:
                return
            fault = self._kinds[key] = FaultKind(error.reason, error.message, error.param)
        fault.count += 1
        if error.line is not None and self._lines < MAX_LINES:
            fault.lines.append(error.line)
            self._lines += 1

    @property
    def kinds(self) -> list[FaultKind]:
        """The kinds, the commonest first."""
        return sorted(self._kinds.values(), key=lambda fault: -fault.count)
