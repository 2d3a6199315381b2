"""Who shows a token: what the key behind it may do now.

An answer is kept only while `users` says, four times a second, which keys changed. When
these beats stop, every request asks anew, and is refused when nobody answers.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core import clock, telemetry
from windlass.core.errors import Unauthenticated, Unavailable, from_rpc
from windlass.core.rpc.auth import Principal

log = telemetry.logger("sessions.callers")
# Beats come each 0.25 s, and a revocation must be effective within one second.
TRUST_SECONDS = 0.7
RETRY_SECONDS = 0.1
ASK_SECONDS = 5.0
CACHED = 10_000
LOOKUPS = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """A key, and the project that it acts in."""

    organization_id: str
    project_id: str
    key_id: str


@dataclass(frozen=True, slots=True)
class Caller:
    """How a key stands."""

    principal: Principal
    # Unix seconds; 0 for a key without an end.
    expires_at: int


class Callers:
    """The keys that are shown to this replica."""

    def __init__(
        self,
        rbac: rbac_pb2_grpc.RbacInternalServiceAsyncStub,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
    ):
        self._rbac = rbac
        self._users = users
        self._kept: dict[Identity, Caller] = {}
        self._trusted_until = 0.0
        # Counts changes: what was asked before one is not kept after it.
        self._changes = 0
        self._lookups = asyncio.Semaphore(LOOKUPS)

    @property
    def trusted(self) -> bool:
        """Whether every change of a key is heard of."""
        return time.monotonic() < self._trusted_until

    async def find(self, identity: Identity) -> Caller:
        """How the key stands; raises Unauthenticated, PermissionDenied or Unavailable."""
        kept = self._kept.get(identity) if self.trusted else None
        caller = kept or await self._ask(identity)
        if caller.expires_at and caller.expires_at <= clock.now():
            raise Unauthenticated("The API key behind this access has expired.")
        return caller

    def has_ended(self, identity: Identity) -> bool:
        """Whether the key's own date may have passed, which no beat tells."""
        kept = self._kept.get(identity)
        return kept is None or 0 < kept.expires_at <= clock.now()

    async def _ask(self, identity: Identity) -> Caller:
        changes = self._changes
        request = rbac_pb2.AuthenticateRequest(
            key_id=identity.key_id,
            project_id=identity.project_id,
            organization_id=identity.organization_id,
        )
        async with self._lookups:
            try:
                answer = await self._rbac.Authenticate(request, timeout=ASK_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise _judged(error) from error
        caller = Caller(Principal.from_proto(answer.principal), answer.expires_at)
        if caller.principal.project_id != identity.project_id:
            raise Unauthenticated("The project of this access is gone.")
        if changes == self._changes:
            if len(self._kept) >= CACHED:
                self._kept.clear()
            self._kept[identity] = caller
        return caller

    async def watch(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """Tells which keys changed, None for any of them, until cancelled."""
        while True:
            try:
                async for beat in self._users.WatchKeys(users_pb2.WatchKeysRequest()):
                    self._trusted_until = time.monotonic() + TRUST_SECONDS
                    keys = frozenset(beat.changed_key_ids)
                    if beat.reset or keys:
                        self._forget(None if beat.reset else keys)
                        changed(None if beat.reset else keys)
            except grpc.aio.AioRpcError as error:
                log.warning("key beats stopped", code=error.code().name)
            await asyncio.sleep(RETRY_SECONDS)

    def _forget(self, keys: frozenset[str] | None) -> None:
        self._changes += 1
        self._kept = {
            identity: caller
            for identity, caller in self._kept.items()
            if keys is not None and identity.key_id not in keys
        }


def _judged(error: grpc.aio.AioRpcError) -> Exception:
    """The verdict on the key; Unavailable where there is none."""
    judged = from_rpc(error)
    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        # One on our own service token is no verdict.
        if judged.reason in ("missing_token", "invalid_token"):
            return Unavailable("API keys cannot be checked now.")
        return Unauthenticated(judged.message, reason=judged.reason)
    return Unavailable("API keys cannot be checked now.")
