"""Connections of gateways to the agent's workloads, which a planned stop waits for."""

import contextlib
from collections.abc import Callable, Iterator


class OpenConnections:
    """Counts what is open by the tunnel, and by ways that count for themselves.

    A gateway closes its idle connections once it hears that the agent drains, so that what is
    still open carries a request.
    """

    def __init__(self) -> None:
        self._open = 0
        self._others: list[Callable[[], int]] = []

    @property
    def count(self) -> int:
        """The number of open connections."""
        return self._open + sum(count() for count in self._others)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts a connection for the length of the block."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def include(self, count: Callable[[], int]) -> None:
        """Has connections count that another listener keeps."""
        self._others.append(count)
