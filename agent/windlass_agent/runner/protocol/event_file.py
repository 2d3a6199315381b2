"""Writer of a trainer's events."""

import os
from pathlib import Path
from typing import Self

from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.trainer_events import TrainerEvent


class EventFile:
    """The metrics file, written by one process of a node."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("ab", buffering=0) if path else None

    @classmethod
    def of_environment(cls) -> Self:
        """Returns the file that the runner named."""
        path = os.environ.get(trainer_events.METRICS_VARIABLE)
        # torchrun's processes all have the variable; the first one of a node speaks.
        is_first = os.environ.get("LOCAL_RANK", "0") == "0"
        return cls(Path(path) if path and is_first else None)

    def write(self, event: TrainerEvent) -> None:
        """Appends an event as one write."""
        if self._file:
            self._file.write(trainer_events.encode(event))
