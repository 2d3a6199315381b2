"""Progress of work beside a server, as a terminal shows it."""

from typing import Protocol


class ProgressReporter(Protocol):
    """Shows what is being done, and how much of it."""

    def say(self, reason: str, total: int | None = None) -> None:
        """Names the work that begins, of `total` bytes where they are known."""

    def advance(self, size: int) -> None:
        """Adds to the bytes that are done."""


class SilentReporter:
    """Shows nothing."""

    def say(self, reason: str, total: int | None = None) -> None:
        """Passes over work that begins."""

    def advance(self, size: int) -> None:
        """Passes over bytes that are done."""


SILENT = SilentReporter()
