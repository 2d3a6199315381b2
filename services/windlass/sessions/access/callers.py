"""Callers behind tokens, with the current permissions of their keys."""

from collections.abc import Callable
from dataclasses import dataclass

import grpc

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.errors import Unauthenticated, Unavailable, from_rpc
from windlass.key_cache import Changed, KeyCache, KnownKey

CACHED = 10_000
LOOKUPS = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """A key, and the project that it acts in."""

    organization_id: str
    project_id: str
    key_id: str


class Callers:
    """A cache of keys used at this replica; bypassed while the watch of keys is silent."""

    def __init__(
        self,
        rbac: rbac_pb2_grpc.RbacInternalServiceAsyncStub,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
    ):
        self._rbac = rbac
        self._keys: KeyCache[Identity] = KeyCache(
            users, self._look_up, size=CACHED, lookups=LOOKUPS
        )

    @property
    def trusted(self) -> bool:
        """True if the watch of keys is current, so cached keys can be trusted."""
        return self._keys.trusted

    async def find(self, identity: Identity) -> KnownKey:
        """The key's present state; raises Unauthenticated, PermissionDenied or Unavailable."""
        known = self._keys.kept(identity) or await self._keys.ask(identity)
        if known.is_over():
            raise Unauthenticated("The API key behind this access has expired.")
        return known

    def has_ended(self, identity: Identity) -> bool:
        """Returns True if the key may have expired, which the watch does not report."""
        return self._keys.may_be_over(identity)

    async def watch(self, changed: Callable[[Changed], None]) -> None:
        """Yields ids of changed keys, None for any of them, until cancelled."""
        await self._keys.watch(changed)

    async def _look_up(self, identity: Identity) -> KnownKey:
        request = rbac_pb2.AuthenticateRequest(
            key_id=identity.key_id,
            project_id=identity.project_id,
            organization_id=identity.organization_id,
        )
        try:
            answer = await self._rbac.Authenticate(request, timeout=self._keys.patience)
        except grpc.aio.AioRpcError as error:
            raise _judged(error) from error
        if answer.principal.project_id != identity.project_id:
            raise Unauthenticated("The project of this access was deleted.")
        return KnownKey.of(answer, key_id=identity.key_id)


def _judged(error: grpc.aio.AioRpcError) -> Exception:
    """The verdict on the key; Unavailable where there is none."""
    judged = from_rpc(error)
    if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        # One on our own service token is no verdict.
        if judged.reason in ("missing_token", "invalid_token"):
            return Unavailable("API keys cannot be checked now.")
        return Unauthenticated(judged.message, reason=judged.reason)
    return Unavailable("API keys cannot be checked now.")
