"""Authentication of requests by API key, without an RPC for a cached key."""

import asyncio

import grpc

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.errors import Unauthenticated, Unavailable, from_rpc
from windlass.core.rpc import auth
from windlass.gateway.authentication.bearers import BearerAdmission
from windlass.gateway.authentication.credentials import (
    INCORRECT,
    CacheKey,
    MadeUpKey,
    is_token,
    session_cookie,
    shown_by,
)
from windlass.gateway.authentication.grace import ASK_SECONDS, OutageGrace
from windlass.key_cache import Changed, KeyCache, KnownKey

LOOKUPS = 64
AWAY = "API keys cannot be checked now; try again."

# The digest of no key.
_NOBODYS: CacheKey = (b"readiness", b"", b"")
# In place of the project: what comes before it is a key's id. No header holds a NUL.
_BY_ID = b"\0id"


class Authenticator:
    """Authenticates requests by their headers."""

    def __init__(
        self,
        rbac: rbac_pb2_grpc.RbacInternalServiceAsyncStub,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
        *,
        size: int = 50_000,
        grace_seconds: float = 0.0,
        bearers: BearerAdmission | None = None,
        is_secure: bool = False,
    ):
        self._rbac = rbac
        self._cookie = session_cookie(secure=is_secure)
        # None: workloads' tokens are no credentials here.
        self._bearers = bearers
        self._keys: KeyCache[CacheKey] = KeyCache(users, self._look_up, size=size, lookups=LOOKUPS)
        self.grace = OutageGrace(self._keys, grace_seconds)
        # Keys that changed since `take_news`; None: any may have.
        self._news: set[str] | None = set()
        self.news = asyncio.Event()

    async def authenticate(
        self, headers: dict[bytes, bytes], peer: str = "", *, graced: bool = False
    ) -> KnownKey:
        """The key of a request; raises Unauthenticated or Unavailable.

        `peer` is the address of the connection; empty where it has none. With `graced`, a known
        key outlasts an outage for the time that the configuration grants.
        """
        credential, key = shown_by(headers, self._cookie)
        if not graced or not self.grace.knows(key):
            return await self._key(credential, key, peer, headers)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._key(credential, key, peer, headers)
        except (Unavailable, TimeoutError) as error:
            if (accepted := self.grace.after_silence(key)) is not None:
                return accepted
            raise Unavailable(AWAY) from error

    def known(self, headers: dict[bytes, bytes], *, graced: bool = False) -> KnownKey | None:
        """The key of a request that needs no lookup; raises Unauthenticated."""
        credential, key = shown_by(headers, self._cookie)
        found = self._good(key) or (self.grace.recall(key) if graced else None)
        if found is None:
            self._require_form(credential)
        return found

    async def recognize(self, key_id: str) -> KnownKey:
        """A key that was shown before, such as the one that made a signed URL.

        Raises Unauthenticated or Unavailable.
        """
        key = (key_id.encode(), _BY_ID, b"")
        return self._good(key) or await self._keys.ask(key)

    @property
    def trusted(self) -> bool:
        """True if the watch of keys is current, so cached keys can be trusted."""
        return self._keys.trusted

    def take_news(self) -> set[str] | None:
        """The keys that changed since the last call; None when any may have."""
        news, self._news = self._news, set()
        self.news.clear()
        return news

    def has_ended(self, key_id: str) -> bool:
        """Returns True if a key may have expired, which the watch does not report."""
        return self._keys.may_key_be_over(key_id)

    async def check(self) -> None:
        """Readiness: raises Unavailable unless keys can be looked up and beats come."""
        await self._keys.check()
        try:
            await self._look_up(_NOBODYS)
        except grpc.aio.AioRpcError as error:
            if from_rpc(error).reason != Unauthenticated.default_reason:
                raise

    async def watch(self) -> None:
        """Follows the watch of keys until cancelled."""
        await self._keys.watch(self._note)

    def vouches(self, key_id: str) -> bool:
        """Returns True if a key that nobody can check now may go on."""
        return self.grace.left > 0 and not self._keys.may_key_be_over(key_id)

    def _note(self, changed: Changed) -> None:
        if changed is None:
            # The watch has begun anew: whoever reports the changes is back.
            self.grace.over()
        if changed is None or self._news is None:
            self._news = None
        else:
            self._news |= changed
        self.news.set()

    def _good(self, key: CacheKey) -> KnownKey | None:
        kept = self._keys.kept(key)
        return None if kept is None or kept.is_over() else kept

    async def _key(
        self, credential: str, key: CacheKey, peer: str, headers: dict[bytes, bytes]
    ) -> KnownKey:
        if (known := self._good(key)) is not None:
            return known
        self._require_form(credential)
        if self._bearers is None or not is_token(credential):
            return await self._keys.ask(key)
        rule_id = await self._bearers.admit(credential)
        try:
            return await self._keys.ask(key)
        except grpc.aio.AioRpcError as error:
            if from_rpc(error).reason != Unauthenticated.default_reason:
                raise
        # It is new, or has come to the end that it was given.
        await self._bearers.judge(rule_id, credential, peer, headers)
        return await self._keys.ask(key)

    def _require_form(self, credential: str) -> None:
        # Not before: what is kept as good costs a request nothing more.
        if self._bearers is not None and is_token(credential):
            self._bearers.require_form(credential)
        elif not auth.may_be_secret(credential):
            raise MadeUpKey(INCORRECT)

    async def _look_up(self, key: CacheKey) -> KnownKey:
        try:
            answer = await self._rbac.Authenticate(_request(key), timeout=self._keys.patience)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise Unavailable(AWAY) from error
            raise
        return KnownKey.of(answer)


def _request(key: CacheKey) -> rbac_pb2.AuthenticateRequest:
    digest, project, organization = key
    if project == _BY_ID:
        return rbac_pb2.AuthenticateRequest(key_id=digest.decode("latin-1"))
    return rbac_pb2.AuthenticateRequest(
        key_digest=digest,
        project_id=project.decode("latin-1"),
        organization_id=organization.decode("latin-1"),
    )
