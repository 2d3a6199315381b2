"""Open connections to clusters, closed when the caller's access is revoked.

A key that is revoked or loses its permission, a member that leaves, an assignment that is
deleted: each ends what depends on it within a second. Tokens that run out end nothing: they
open, and what is open is judged by the key behind them.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice

from windlass.core import telemetry
from windlass.core.addresses import Address
from windlass.core.certificates import PresentedCertificate
from windlass.core.errors import (
    AppError,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from windlass.key_cache import KnownKey
from windlass.sessions.access.assignments import Assignments
from windlass.sessions.access.callers import Callers, Identity

log = telemetry.logger("sessions.active_connections")
LOOK_SECONDS = 0.3
# While nobody can say how keys and assignments stand, what is open stays so long.
DOUBT_SECONDS = 10.0
MAX_PER_PROJECT = 2000
RECHECKS = 32

Abort = Callable[[AppError], None]


@dataclass(frozen=True, slots=True, eq=False)
class Open:
    """An open connection, the key and assignment it depends on, and how to close it."""

    identity: Identity
    cluster_id: str
    namespace: str
    permission: str
    abort: Abort
    # The client's; None for a socket of this machine.
    address: Address | None = None
    # The client's; None without one.
    certificate: PresentedCertificate | None = None


def _may(known: KnownKey, one: Open) -> bool:
    allowed = known.principal.may(one.permission) and known.takes(one.address)
    return allowed and known.admits(one.certificate)


class ActiveConnections:
    """The open connections of this replica."""

    def __init__(self, callers: Callers, assignments: Assignments):
        self._callers = callers
        self._assignments = assignments
        self._open: dict[Identity, set[Open]] = {}
        self._projects: Counter[str] = Counter()
        self._changed: set[Identity] = set()
        self._news = asyncio.Event()
        self._is_used = asyncio.Event()
        self._sure_at = time.monotonic()

    @asynccontextmanager
    async def opened(self, one: Open) -> AsyncIterator[None]:
        """Tracks a connection while the block runs.

        Raises ResourceExhausted beyond the bound, and what `find` raises when the caller lost
        its right in the moment before.
        """
        project = one.identity.project_id
        if self._projects[project] >= MAX_PER_PROJECT:
            raise ResourceExhausted("This project has too many open requests to clusters.")
        self._projects[project] += 1
        self._open.setdefault(one.identity, set()).add(one)
        self._is_used.set()
        try:
            await self._confirm(one)
            yield
        finally:
            self._projects[project] -= 1
            if not self._projects[project]:
                del self._projects[project]
            mine = self._open[one.identity]
            mine.discard(one)
            if not mine:
                del self._open[one.identity]

    async def _confirm(self, one: Open) -> None:
        place = await self._assignments.namespace(one.cluster_id, one.identity.project_id)
        caller = await self._callers.find(one.identity)
        if place != one.namespace or not _may(caller, one):
            raise PermissionDenied("The access was revoked.")

    async def run(self) -> None:
        """Closes connections whose access was revoked, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._callers.watch(self._hear))
            group.create_task(self._look_on())

    def _hear(self, keys: frozenset[str] | None) -> None:
        self._changed |= {who for who in self._open if keys is None or who.key_id in keys}
        if self._changed:
            self._news.set()

    async def _look_on(self) -> None:
        while True:
            if not self._open:
                await self._rest()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            self._news.clear()
            asked = self._due()
            try:
                await self._look(asked)
                self._sure_at = time.monotonic()
            except* Unavailable:
                self._changed |= asked
                self._doubt()

    async def _rest(self) -> None:
        self._is_used.clear()
        await self._is_used.wait()
        self._sure_at = time.monotonic()

    def _due(self) -> set[Identity]:
        """Returns the keys to check; all of them while the watch of keys is down."""
        changed, self._changed = self._changed, set()
        if not self._callers.trusted:
            return set(self._open)
        return {who for who in self._open if who in changed or self._callers.has_ended(who)}

    async def _look(self, asked: set[Identity]) -> None:
        for one in [one for of in self._open.values() for one in of]:
            place = await self._assignments.namespace(one.cluster_id, one.identity.project_id)
            if place != one.namespace:
                one.abort(PermissionDenied("The project is no longer assigned to this cluster."))
        waiting = iter(asked)
        while some := list(islice(waiting, RECHECKS)):
            async with asyncio.TaskGroup() as group:
                for who in some:
                    group.create_task(self._judge(who))

    async def _judge(self, who: Identity) -> None:
        try:
            known = await self._callers.find(who)
        except Unauthenticated as error:
            self._end(who, error)
        else:
            self._end(
                who,
                PermissionDenied("The API key no longer has the permission for this request."),
                known=known,
            )

    def _end(self, who: Identity, error: AppError, *, known: KnownKey | None = None) -> None:
        for one in tuple(self._open.get(who, ())):
            if known is None or not _may(known, one):
                log.info(
                    "connection_revoked",
                    key_id=who.key_id,
                    cluster_id=one.cluster_id,
                    reason=error.reason,
                )
                one.abort(error)

    def _doubt(self) -> None:
        if time.monotonic() - self._sure_at < DOUBT_SECONDS:
            return
        error = Unavailable("Authorization cannot be checked now; try again.")
        for who in tuple(self._open):
            self._end(who, error)
