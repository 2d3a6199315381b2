"""The operations of one run that wait, in their order."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from windlass_agent.tuning.requests.operations import Barrier, ComputeLoss, Operation


@dataclass(eq=False)
class Ticket:
    """An operation, and the future that it ends."""

    operation: Operation
    future: "Future[Any]" = field(default_factory=Future)
    begun: int = 0
    """Examples that a pass has taken."""
    device_seconds: float = 0.0
    """Its share of the passes so far."""


@dataclass(frozen=True)
class Portion:
    """Examples of one operation that a pass takes, by their places."""

    ticket: Ticket
    places: tuple[int, ...]


class RunQueue:
    """Tickets of a run; examples leave it one by one, barriers when all before them have ended."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self._open: list[Ticket] = []

    def __len__(self) -> int:
        return len(self._tickets)

    def append(self, ticket: Ticket) -> None:
        """Adds an operation behind all others."""
        self._tickets.append(ticket)

    def barrier(self) -> tuple[Ticket, Barrier] | None:
        """Takes the first operation if it is a barrier."""
        self._drop_ended()
        if not self._tickets or self._open:
            return None
        ticket = self._tickets[0]
        operation = ticket.operation
        if isinstance(operation, ComputeLoss):
            return None
        self._tickets.popleft()
        return ticket, operation

    def next_tokens(self) -> int | None:
        """Returns the length of the example that would be taken; None if there is none."""
        self._drop_ended()
        if not self._tickets:
            return None
        operation = self._tickets[0].operation
        if not isinstance(operation, ComputeLoss):
            return None
        return len(operation.examples[self._tickets[0].begun].tokens)

    def take(self) -> tuple[Ticket, int]:
        """Takes that example: its operation and its place there."""
        ticket = self._tickets[0]
        operation = ticket.operation
        assert isinstance(operation, ComputeLoss)  # noqa: S101  # next_tokens said so
        place, ticket.begun = ticket.begun, ticket.begun + 1
        if ticket not in self._open:
            self._open.append(ticket)
        if ticket.begun == len(operation.examples):
            self._tickets.popleft()
        return ticket, place

    def close(self, ticket: Ticket) -> None:
        """Notes that all examples of an operation have been through a pass, or that it failed."""
        if ticket in self._open:
            self._open.remove(ticket)

    def drain(self) -> list[Ticket]:
        """Takes everything, begun or not."""
        left = list(dict.fromkeys([*self._open, *self._tickets]))
        self._tickets.clear()
        self._open.clear()
        return left

    def _drop_ended(self) -> None:
        # Who asked may have given up between two passes.
        self._open = [ticket for ticket in self._open if not ticket.future.done()]
        while self._tickets and self._tickets[0].future.done():
            self._tickets.popleft()
