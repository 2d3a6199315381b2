"""Closes an agent's streams when its credential is no longer valid.

Streams were admitted when they opened. Whoever unregisters a cluster, or lets a credential
end, must see them end within a second: so each agent's is looked at whenever its cluster is
touched, and often anyway.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from windlass.core import telemetry
from windlass.core.db.wake import Wake
from windlass.core.errors import AppError, PermissionDenied, Unauthenticated, Unavailable
from windlass.core.rpc.auth import AgentIdentity
from windlass.sessions.tunnel.domain import cluster_topic

POLL_SECONDS = 0.7
# The topic is touched with each change of a workload too.
PAUSE_SECONDS = 0.2
# While nobody can say whether a credential is good, what is open stays so long.
DOUBT_SECONDS = 10.0

log = telemetry.logger("tunnel")

Authenticate = Callable[[bytes], Awaitable[object]]
End = Callable[[AppError], None]


class CredentialWatch:
    """Watches the credentials of agents that have streams here."""

    def __init__(self, wake: Wake, authenticate: Authenticate):
        self._wake = wake
        self._authenticate = authenticate
        self._watches: dict[tuple[str, str], _LifeWatch] = {}

    async def check(self, agent: AgentIdentity) -> None:
        """Raises unless the credential is valid now; bypasses the cache of admission."""
        await self._authenticate(agent.credential)

    @contextmanager
    def over(self, agent: AgentIdentity, session_id: str, end: End) -> Iterator[None]:
        """Calls `end` if, before the end of the block, the agent's credential is revoked.

        The newest credential of a life vouches for all of it, since rotation ends the others.
        """
        # Without a session a stream stands for itself.
        key = (agent.cluster_id, session_id or agent.credential.hex())
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _LifeWatch(
                self._wake, self._authenticate, agent.cluster_id
            )
        watch.credential = agent.credential
        watch.ends.add(end)
        try:
            yield
        finally:
            watch.ends.discard(end)
            if not watch.ends and self._watches.get(key) is watch:
                del self._watches[key]
                watch.task.cancel()


class _LifeWatch:
    def __init__(self, wake: Wake, authenticate: Authenticate, cluster_id: str):
        self._wake = wake
        self._authenticate = authenticate
        self._cluster_id = cluster_id
        self.credential = b""
        self.ends: set[End] = set()
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        listener = self._wake.listen(cluster_topic(self._cluster_id))
        sure_at = time.monotonic()
        try:
            while True:
                await listener.wait(POLL_SECONDS)
                failure = await self._look()
                if failure is None:
                    sure_at = time.monotonic()
                elif not isinstance(failure, Unavailable):
                    self._end(failure)
                elif time.monotonic() - sure_at > DOUBT_SECONDS:
                    log.warning("agent_credential_check_failed", error=failure.message)
                    self._end(failure)
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            listener.close()

    async def _look(self) -> AppError | None:
        """Returns the error to end the agent's streams with; Unavailable if unknown."""
        credential = self.credential
        try:
            await self._authenticate(credential)
        except (Unauthenticated, PermissionDenied) as error:
            # Meanwhile a stream may have come with the next one.
            return error if credential == self.credential else None
        except Exception as error:
            return Unavailable(f"The credential cannot be checked now: {error}")
        return None

    def _end(self, failure: AppError) -> None:
        log.info("agent_streams_ended", cluster_id=self._cluster_id, reason=failure.reason)
        for end in tuple(self.ends):
            with contextlib.suppress(Exception):
                end(failure)
