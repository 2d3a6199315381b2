"""Operations on their way, in memory, to who carries out their run in this process.

Each is a row already; what gets lost here is read from there.
"""

import asyncio
from typing import Protocol

# Of one run, ahead of their turn; later ones are read from their rows.
HELD_AHEAD = 64


class DueOperation(Protocol):
    """An operation as who carries it out needs it."""

    @property
    def id(self) -> str:
        """Returns its id."""
        ...

    @property
    def organization_id(self) -> str:
        """Returns its organization."""
        ...

    @property
    def project_id(self) -> str:
        """Returns its project."""
        ...

    @property
    def sampler_id(self) -> str:
        """Returns the sampler that is asked, or nothing."""
        ...

    @property
    def seq_id(self) -> int:
        """Returns its number, or 0."""
        ...

    @property
    def body(self) -> bytes | None:
        """Returns its body, unless that is an object."""
        ...

    @property
    def body_key(self) -> str:
        """Returns the object of its body, or nothing."""
        ...


class Inbox:
    """Operations of a run whose lease is held here."""

    def __init__(self) -> None:
        self._ahead: dict[int, DueOperation] = {}
        self._event = asyncio.Event()
        # Rows are to be looked at: at first, and for whatever did not come this way.
        self._looks = True
        self.is_idle = False
        self.is_left = False

    def offer(self, operation: DueOperation) -> None:
        """Brings an operation that was written here."""
        if operation.seq_id and len(self._ahead) < HELD_AHEAD:
            self._ahead[operation.seq_id] = operation
            self._event.set()
        else:
            self.look()

    def look(self) -> None:
        """Says that there are rows which did not come this way."""
        self._looks = True
        self._event.set()

    def leave(self) -> None:
        """Asks the holder to save the run and to give it back."""
        self.is_left = True
        self._event.set()

    def looks(self) -> bool:
        """Returns True, once, where rows are to be looked at."""
        looked, self._looks = self._looks, False
        return looked

    def take(self, next_seq: int) -> list[DueOperation]:
        """The operations whose turn it is."""
        found = []
        while (operation := self._ahead.pop(next_seq, None)) is not None:
            found.append(operation)
            next_seq += 1
        if self._ahead and min(self._ahead) < next_seq:
            # The run went on without it.
            self._ahead.clear()
            self._looks = True
        return found

    async def wait(self) -> None:
        """Waits until something came."""
        self.is_idle = True
        try:
            await self._event.wait()
        finally:
            self.is_idle = False
            self._event.clear()


class Inboxes:
    """The inboxes of runs that this process holds."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Inbox, str]] = {}

    def open(self, run_id: str, token: str) -> Inbox:
        """The inbox of a run whose lease was taken by this token."""
        inbox = Inbox()
        self._held[run_id] = inbox, token
        return inbox

    def close(self, run_id: str, inbox: Inbox) -> None:
        """Takes no more for a run."""
        if self._held.get(run_id, (None,))[0] is inbox:
            del self._held[run_id]

    def offer(self, run_id: str, operation: DueOperation) -> bool:
        """Hands an operation over; returns False where nobody here holds the run."""
        if (held := self._held.get(run_id)) is None:
            return False
        held[0].offer(operation)
        return True

    def tokens(self) -> dict[str, str]:
        """The tokens of the leases, by run."""
        return {run_id: token for run_id, (_, token) in self._held.items()}

    def idle(self) -> list[str]:
        """The runs whose holders wait."""
        return [run_id for run_id, (inbox, _) in self._held.items() if inbox.is_idle]

    def find(self, run_id: str) -> Inbox | None:
        """The inbox of a run that is held here."""
        return self._held.get(run_id, (None,))[0]


class SampleDesk:
    """Requests of samplers that this process has leased as it wrote them, for who answers them."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[tuple[DueOperation, str]] = asyncio.Queue()
        # Requests that may be answered here beside those that are; none before somebody does.
        self.free = 0

    def has_room(self) -> bool:
        """Returns True while another request is answered at once."""
        return self._asked.qsize() < self.free

    def put(self, operation: DueOperation, token: str) -> None:
        """Hands over a request that was written with this lease."""
        self._asked.put_nowait((operation, token))

    async def take(self) -> tuple[DueOperation, str]:
        """Waits for a request, and returns it with its lease."""
        return await self._asked.get()
