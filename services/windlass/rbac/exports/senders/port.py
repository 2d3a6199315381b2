"""The contract of every way to a destination."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from windlass.rbac.exports.destinations import Destination
from windlass.rbac.exports.ocsf import line


class Undelivered(Exception):
    """The receiver has not got a batch, or does not say so; the text is for its organization."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that follow each other, in order; at least one."""

    events: Sequence[dict[str, Any]]

    @property
    def span(self) -> str:
        """Sequences of the first event and of the last."""
        return f"{self.events[0]['sequence']:020d}-{self.events[-1]['sequence']:020d}"

    @property
    def lines(self) -> bytes:
        """All events as JSON lines."""
        return b"".join(map(line, self.events))


class ExportSender(Protocol):
    """Sends to one kind of destination."""

    async def send(self, destination: Destination, secret: bytes, batch: EventBatch) -> None:
        """Returns once the receiver has it; raises Undelivered."""
