"""Requests in progress, cancelled when their API key loses its permissions.

A key that is revoked or expires, a member that leaves or loses rights: each ends running answers
within a second. Sending costs nothing for it; an exchange is noted when it begins, and looked at
when the beats name its key.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable

import grpc

from windlass.core import telemetry
from windlass.core.errors import AppError, PermissionDenied, Unauthenticated, Unavailable, from_rpc
from windlass.core.rpc.auth import Principal
from windlass.gateway.authentication.authenticator import AWAY, Authenticator

log = telemetry.logger("gateway.requests")
LOOK_SECONDS = 0.25
# While nobody can say how keys stand, what is open stays so long.
DOUBT_SECONDS = 10.0

Ask = Callable[[], Awaitable[Principal]]


class ActiveRequest:
    """One request in progress, its caller, and how to look up that caller again."""

    __slots__ = ("_ask", "_principal", "_task", "graced", "is_minded", "reason")

    def __init__(self, principal: Principal, ask: Ask, task: asyncio.Task[object], *, graced: bool):
        self._principal = principal
        self._ask = ask
        self._task = task
        # Whether it outlasts an outage as a new request with its key does.
        self.graced = graced
        # True where the answer asks again by itself, and ends in its own words.
        self.is_minded = False
        # Why it was ended; None while it goes on.
        self.reason: AppError | None = None

    @property
    def key_id(self) -> str:
        """Id of the key that authorizes the request."""
        return self._principal.key_id

    async def judge(self) -> None:
        """Ends the request unless its caller has kept its permissions; raises Unavailable."""
        if self.is_minded:
            return
        try:
            now = await self._ask()
        except grpc.aio.AioRpcError as error:
            self.end(_verdict(error))
            return
        except (PermissionDenied, Unauthenticated) as error:
            self.end(error)
            return
        same = now.project_id == self._principal.project_id
        if not same or not now.covers(self._principal):
            self.end(PermissionDenied("The rights of this API key have changed."))

    def end(self, reason: AppError) -> None:
        """Cancels the request's task, which then sends the client an error if it still can."""
        if self.reason is None:
            log.info("request_revoked", key_id=self.key_id, reason=reason.message)
            self.reason = reason
            self._task.cancel()


def _verdict(error: grpc.aio.AioRpcError) -> AppError:
    """The answer about the key; raises Unavailable where there is none."""
    judged = from_rpc(error)
    # One on our own service token is no verdict.
    ours = judged.reason in ("missing_token", "invalid_token")
    if isinstance(judged, Unauthenticated | PermissionDenied) and not ours:
        return judged
    raise Unavailable(AWAY) from error


class ActiveRequests:
    """The requests in progress at this gateway."""

    def __init__(self, authenticator: Authenticator):
        self._authenticator = authenticator
        self._held: dict[str, set[ActiveRequest]] = {}
        self._is_used = asyncio.Event()
        self._sure_at = time.monotonic()

    def enter(
        self, principal: Principal, ask: Ask, task: asyncio.Task[object], *, graced: bool = False
    ) -> ActiveRequest:
        """Registers a task as a request of this caller, until `leave`."""
        held = ActiveRequest(principal, ask, task, graced=graced)
        self._held.setdefault(held.key_id, set()).add(held)
        self._is_used.set()
        return held

    def leave(self, held: ActiveRequest) -> None:
        """Removes a finished request."""
        mine = self._held[held.key_id]
        mine.discard(held)
        if not mine:
            del self._held[held.key_id]

    async def run(self) -> None:
        """Ends requests whose permissions were revoked, until cancelled."""
        asked: set[str] = set()
        while True:
            if not self._held:
                asked = set()
                await self._rest()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._authenticator.news.wait()
            asked = self._due(asked)
            try:
                await self._look(asked)
            except Unavailable:
                self._doubt()
            else:
                asked, self._sure_at = set(), time.monotonic()

    async def _rest(self) -> None:
        self._is_used.clear()
        await self._is_used.wait()
        self._sure_at = time.monotonic()

    def _due(self, still: set[str]) -> set[str]:
        changed = self._authenticator.take_news()
        if changed is None or not self._authenticator.trusted:
            return set(self._held)
        ended = {key for key in self._held if self._authenticator.has_ended(key)}
        return ((changed | still) & self._held.keys()) | ended

    async def _look(self, keys: Iterable[str]) -> None:
        for key in keys:
            # One after the other: the first asks, the others find the answer kept.
            for held in tuple(self._held.get(key, ())):
                await held.judge()

    def _doubt(self) -> None:
        if time.monotonic() - self._sure_at < DOUBT_SECONDS:
            return
        for held in [one for of in self._held.values() for one in of]:
            if not (held.graced and self._authenticator.vouches(held.key_id)):
                held.end(Unavailable("Authorization cannot be checked now; try again."))
