"""The agent's credential: where it lies, and how it is renewed long before it ends."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import grpc
import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.folders import write_private
from windlass_agent.retrying import reason_of

# Of its life, when the next one is asked for: early enough to sleep through half of it.
RENEW_AT = (0.4, 0.6)
LONGEST_PAUSE_SECONDS = 60.0
# Somebody, perhaps this agent's life before, has a newer one; or there is none any more.
_OVER = frozenset({"credential_expired", "credential_superseded"})

log = telemetry.logger("credentials")

Enroll = Callable[[], Awaitable[pb.EnrollResponse]]


class Credential(msgspec.Struct, frozen=True):
    """Credential of a cluster's agent; `cluster_id` is empty in old files."""

    secret: str
    cluster_id: str = ""


class AgentCredentialStore(Protocol):
    """Persistent store of an agent's credential."""

    async def load(self) -> Credential | None:
        """The stored one, if any."""

    async def save(self, credential: Credential) -> None:
        """Replaces it, durably and at once."""

    async def forget(self) -> None:
        """Drops it."""


class FileCredentials:
    """A file of mode 0600: JSON, or the secret alone."""

    def __init__(self, path: Path):
        self._path = path

    async def load(self) -> Credential | None:
        """See AgentCredentialStore; raises ValueError for a file that holds none."""
        if not self._path.exists():
            return None
        text = self._path.read_text().strip()
        if not text.startswith("{"):
            return Credential(text)
        return msgspec.json.decode(text, type=Credential)

    async def save(self, credential: Credential) -> None:
        """See AgentCredentialStore; raises OSError."""
        write_private(self._path, msgspec.json.encode(credential))

    async def forget(self) -> None:
        """See AgentCredentialStore; raises OSError."""
        self._path.unlink(missing_ok=True)


async def first_credential(store: AgentCredentialStore, enroll: Enroll) -> Credential:
    """The credential to begin with: the stored one, else that of an enrolment, which is stored."""
    if stored := await store.load():
        return stored
    made = _credential(await enroll())
    await store.save(made)
    return made


class Renewal:
    """Asks for a new credential at the start and at half of each one's life.

    At the start too, since nothing tells the age of the one that was stored. By durations
    alone: the agent's clock may be wrong. The new one is stored before its first use, which
    is what ends the old one.
    """

    def __init__(self, control: ControlPlane, store: AgentCredentialStore, enroll: Enroll):
        self._control = control
        self._store = store
        # Spends a registration key; raises what says that there is none.
        self._enroll = enroll

    async def run(self) -> None:
        """Renews the credential until cancelled."""
        backoff = Backoff(longest=LONGEST_PAUSE_SECONDS)
        while True:
            try:
                lifetime_seconds = await self._renew()
            except Exception as error:
                log.warning("credential_renewal_failed", error=_told(error))
                await backoff.pause()
                continue
            backoff.reset()
            await self._wait(lifetime_seconds)

    async def _renew(self) -> float | None:
        """Stores and uses the next credential; returns its lifetime, None without an end."""
        try:
            answer = await self._control.rotate()
        except grpc.aio.AioRpcError as error:
            if (reason := reason_of(error)) == "credential_permanent":
                return None
            if reason not in _OVER:
                raise
            answer = await self._begin_again()
        await self._store.save(_credential(answer))
        self._control.use(answer.credential)
        return answer.lifetime_seconds

    async def _begin_again(self) -> pb.EnrollResponse:
        """A credential for an agent whose own is over."""
        stored = await self._store.load()
        if stored and stored.secret != self._control.credential:
            self._control.use(stored.secret)
            return await self._control.rotate()
        return await self._enroll()

    async def _wait(self, lifetime_seconds: float | None) -> None:
        """Waits until a renewal is due or the credential is refused."""
        at = None if lifetime_seconds is None else lifetime_seconds * random.uniform(*RENEW_AT)  # noqa: S311
        with suppress(TimeoutError):
            async with asyncio.timeout(at):
                await self._control.expired.wait()
        self._control.expired.clear()


def _credential(answer: pb.EnrollResponse) -> Credential:
    return Credential(answer.credential, answer.cluster_id)


def _told(error: Exception) -> str:
    """A description of the failure of a call, or of anything else."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
