"""Ports of what starts a trainer's process, and what of a started one its caller needs to know."""

from pathlib import Path
from typing import Protocol

from windlass.tuning_api.trainers.seats import Seat


class LaunchedProcess(Protocol):
    """A process that runs, on this machine or in a pod."""

    @property
    def token(self) -> str:
        """The token that its callers show."""
        ...

    @property
    def socket(self) -> Path:
        """The path of the socket that leads to it."""
        ...

    @property
    def folder_bytes(self) -> int | None:
        """Most bytes of a folder that it may send; None for one that sees the caller's folders."""
        ...

    @property
    def pid(self) -> int:
        """The id of the process; 0 for one of another machine."""
        ...

    @property
    def has_ended(self) -> bool:
        """True once it is gone."""
        ...

    async def wait(self) -> int:
        """Returns its exit code once it has ended."""
        ...

    async def end(self) -> None:
        """Ends it."""
        ...


class TrainerLauncher(Protocol):
    """Starts the process of a trainer on a seat."""

    async def launch(self, seat: Seat) -> LaunchedProcess:
        """Starts one; raises OSError."""
        ...
