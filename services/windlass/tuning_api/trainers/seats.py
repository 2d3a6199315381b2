"""The port of seats: what a trainer's process holds for as long as it lives."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from windlass.tuning_api.trainers.port import TrainerLost


class SeatRefused(TrainerLost):
    """A model that no device has room for, even when it is empty; the message has the numbers."""


class SeatAwaited(TrainerLost):
    """A lack of room that may pass; the message says why. Whoever asks again keeps its place."""


@dataclass(frozen=True, slots=True)
class SeatedWorkload:
    """A base model that is to have a seat, and whose one of its own is."""

    base_model: str
    owner: str = ""
    """The one run or session that it is for; empty: all who name the model share it."""
    trained: int = 0
    """Parameters that it trains beside an adapter's."""
    replica: int = 0
    """Which one of several that its owner has."""


class ResidentProcess(Protocol):
    """The process that sits on a seat."""

    @property
    def pid(self) -> int:
        """The id of the process."""
        ...

    async def park(self) -> int:
        """Has it free its device; returns the bytes. Raises TrainerLost where it cannot."""
        ...

    async def restore(self) -> None:
        """Brings back what it parked. Raises TrainerLost where it cannot."""
        ...

    async def end(self) -> None:
        """Ends it, by force if need be; returns once it is gone, and its seat is given back."""
        ...


class Seat(Protocol):
    """A place on a device, taken before a process starts and given back after its end."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables by which the process finds its device."""
        ...

    @property
    def is_wanted(self) -> bool:
        """True while others wait for room: who is idle should go."""
        ...

    async def attach(self, process: ResidentProcess) -> None:
        """Notes the process that was started."""
        ...

    def turn(self, project_id: str) -> AbstractAsyncContextManager[None]:
        """A block during which the device is the process's; waits for it.

        Raises TrainerLost if the process was ended meanwhile.
        """
        ...

    async def give_back(self) -> None:
        """Leaves the device to others; what is given back already stays so."""
        ...


class Seating(Protocol):
    """Gives seats to processes that are to start."""

    async def take(self, workload: SeatedWorkload, project_id: str) -> Seat:
        """A seat for a workload. Raises SeatRefused, SeatAwaited, TrainerLost at the end."""
        ...

    async def give_up(self, workload: SeatedWorkload) -> None:
        """Leaves the line, if this waits in one; whoever asks meanwhile gets SeatAwaited."""
        ...


class Unseated:
    """Implements `Seating` and `Seat` where nobody counts: room for all, and always their turn."""

    environment: Mapping[str, str] = {}
    is_wanted = False

    async def take(self, workload: SeatedWorkload, project_id: str) -> "Unseated":
        """Itself."""
        return self

    async def give_up(self, workload: SeatedWorkload) -> None:
        """Does nothing: nobody waits."""

    async def attach(self, process: ResidentProcess) -> None:
        """Notes nothing."""

    @asynccontextmanager
    async def turn(self, project_id: str) -> AsyncIterator[None]:
        """Lets everybody in at once."""
        yield

    async def give_back(self) -> None:
        """Does nothing: nothing was taken."""
