"""Closes an agent's streams when its credential is no longer valid.

Streams were admitted when they opened. Whoever unregisters a cluster, or lets a credential
end, must see them end within a second: so all credentials are looked at together whenever one
of their clusters is touched, and often anyway.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from windlass.core import telemetry
from windlass.core.db.wake import Wake
from windlass.core.errors import AppError, Unavailable
from windlass.core.rpc.auth import AgentIdentity
from windlass.sessions.tunnel.domain import cluster_topic

POLL_SECONDS = 0.7
# The topic is touched with each change of a workload too.
PAUSE_SECONDS = 0.2
# While nobody can say whether a credential is good, what is open stays so long.
DOUBT_SECONDS = 10.0

log = telemetry.logger("tunnel")

Authenticate = Callable[[bytes], Awaitable[object]]
# The credentials that are not valid, each with the error of a call with it.
FindEnded = Callable[[Collection[bytes]], Awaitable[Mapping[bytes, AppError]]]
End = Callable[[AppError], None]


class CredentialWatch:
    """Watches the credentials of agents that have streams here."""

    def __init__(self, wake: Wake, authenticate: Authenticate, find_ended: FindEnded):
        self._authenticate = authenticate
        self._find_ended = find_ended
        self._listener = wake.listen()
        self._lives: dict[tuple[str, str], _Life] = {}
        self._watching: asyncio.Task[None] | None = None

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
        life = self._lives.get(key) or self._begin(key)
        life.credential = agent.credential
        life.ends.add(end)
        try:
            yield
        finally:
            life.ends.discard(end)
            if not life.ends and self._lives.get(key) is life:
                self._forget(key)

    def _begin(self, key: tuple[str, str]) -> "_Life":
        life = self._lives[key] = _Life(key[0])
        self._listener.add(cluster_topic(life.cluster_id))
        # It may have ended since it was admitted.
        self._listener.set()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="credentials of agents")
        return life

    def _forget(self, key: tuple[str, str]) -> None:
        cluster_id = self._lives.pop(key).cluster_id
        if all(life.cluster_id != cluster_id for life in self._lives.values()):
            self._listener.remove(cluster_topic(cluster_id))
        if not self._lives and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        while True:
            await self._listener.wait(POLL_SECONDS)
            await self._look()
            await asyncio.sleep(PAUSE_SECONDS)

    async def _look(self) -> None:
        asked = {life: life.credential for life in self._lives.values()}
        try:
            ended = await self._find_ended(set(asked.values()))
        except Exception as error:
            self._doubt(asked, Unavailable(f"The credential cannot be checked now: {error}"))
            return
        for life, credential in asked.items():
            life.sure_at = time.monotonic()
            # Meanwhile a stream may have come with the next one.
            if credential in ended and credential == life.credential:
                life.end(ended[credential])

    def _doubt(self, lives: Collection["_Life"], failure: Unavailable) -> None:
        now = time.monotonic()
        unsure = [life for life in lives if now - life.sure_at > DOUBT_SECONDS]
        if unsure:
            log.warning("agent_credential_check_failed", error=failure.message)
        for life in unsure:
            life.end(failure)


class _Life:
    """The streams of one life of an agent, and the credential that vouches for them."""

    def __init__(self, cluster_id: str):
        self.cluster_id = cluster_id
        self.credential = b""
        self.ends: set[End] = set()
        self.sure_at = time.monotonic()

    def end(self, failure: AppError) -> None:
        """Ends every stream."""
        log.info("agent_streams_ended", cluster_id=self.cluster_id, reason=failure.reason)
        for end in tuple(self.ends):
            with contextlib.suppress(Exception):
                end(failure)
