"""From a request's API key to a principal, without an RPC for a key known to be good.

A cached key is trusted only while `users` says, at each change and at least every 0.7 s,
which keys changed; when the beats stop, every request asks rbac again.
"""

import asyncio
import math
import time
from collections import OrderedDict, defaultdict
from dataclasses import dataclass

import grpc

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core import clock, telemetry
from windlass.core.errors import Unauthenticated, Unavailable
from windlass.core.rpc import auth
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.following import STALE_SECONDS

log = telemetry.logger("gateway.auth")
# Beats come each 0.7 s, and a revocation must be effective within one second.
TRUST_SECONDS = 0.9
LOOKUPS = 64
CREDENTIAL_BYTES = 512
RETRY_SECONDS = 0.1

MISSING = (
    "You didn't provide an API key. Send it in an Authorization header: "
    "Authorization: Bearer YOUR_KEY, or as X-API-Key."
)
INCORRECT = "Incorrect API key provided."


@dataclass(frozen=True, slots=True)
class _Entry:
    principal: Principal
    expires_at: float

    def is_over(self) -> bool:
        return 0 < self.expires_at <= clock.now()


CacheKey = tuple[bytes, bytes, bytes]
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
    ):
        self._rbac = rbac
        self._users = users
        self._size = size
        self._cache: OrderedDict[CacheKey, _Entry] = OrderedDict()
        self._by_key: defaultdict[str, set[CacheKey]] = defaultdict(set)
        self._trusted_until = -math.inf
        # What changed while a lookup was on its way must not be cached by it.
        self._beats = 0
        self._changed_at: OrderedDict[str, int] = OrderedDict()
        self._reset_at = 0
        # Keys that changed since `take_news`; None: any may have.
        self._news: set[str] | None = set()
        self.news = asyncio.Event()
        self._lookups = asyncio.Semaphore(LOOKUPS)

    async def authenticate(self, headers: dict[bytes, bytes]) -> Principal:
        """The principal of a request; raises Unauthenticated or Unavailable."""
        return self.known(headers) or await self._ask(_cache_key(headers))

    def known(self, headers: dict[bytes, bytes]) -> Principal | None:
        """The principal of a request whose key is kept as good; raises Unauthenticated."""
        key = _cache_key(headers)
        entry = self._cache.get(key)
        if entry is None or not self.trusted or entry.is_over():
            return None
        self._cache.move_to_end(key)
        return entry.principal

    async def recognize(self, key_id: str) -> Principal:
        """The principal of a key that was shown before, such as the maker of a signed URL.

        Raises Unauthenticated or Unavailable.
        """
        key = (key_id.encode(), _BY_ID, b"")
        entry = self._cache.get(key)
        if entry is not None and self.trusted and not entry.is_over():
            return entry.principal
        return await self._ask(key)

    @property
    def trusted(self) -> bool:
        """Whether every change of a key is heard of."""
        return time.monotonic() < self._trusted_until

    def take_news(self) -> set[str] | None:
        """The keys that changed since the last call; None when any may have."""
        news, self._news = self._news, set()
        self.news.clear()
        return news

    def has_ended(self, key_id: str) -> bool:
        """Whether a key's own date may have passed, which no beat tells."""
        kept = self._by_key.get(key_id)
        return not kept or any(self._cache[one].is_over() for one in kept)

    async def _ask(self, key: CacheKey) -> Principal:
        started, request = self._beats, _request(key)
        async with self._lookups:
            try:
                answer = await self._rbac.Authenticate(request, timeout=5)
            except grpc.aio.AioRpcError as error:
                self._forget(key)
                if error.code() in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                ):
                    raise Unavailable("API keys cannot be checked now.") from error
                raise
        entry = _Entry(Principal.from_proto(answer.principal), float(answer.expires_at))
        self._keep(key, entry, started)
        return entry.principal

    def _keep(self, key: CacheKey, entry: _Entry, started: int) -> None:
        changed = self._changed_at.get(entry.principal.key_id, 0)
        if max(changed, self._reset_at) > started:
            return
        self._forget(key)
        self._cache[key] = entry
        self._by_key[entry.principal.key_id].add(key)
        if len(self._cache) > self._size:
            self._forget(next(iter(self._cache)))

    def _forget(self, key: CacheKey) -> None:
        entry = self._cache.pop(key, None)
        if entry is None:
            return
        keys = self._by_key[entry.principal.key_id]
        keys.discard(key)
        if not keys:
            del self._by_key[entry.principal.key_id]

    async def check(self) -> None:
        """For readiness: raises Unavailable while the beats have stopped for longer than 10 s."""
        if time.monotonic() > self._trusted_until + STALE_SECONDS:
            raise Unavailable("The stream of keys has been silent for too long.", reason="stale")

    async def watch(self) -> None:
        """Follows the beats until cancelled."""
        while True:
            try:
                async for beat in self._users.WatchKeys(users_pb2.WatchKeysRequest()):
                    self._hear(beat)
            except grpc.aio.AioRpcError as error:
                log.warning("key beats stopped", code=error.code().name)
            await asyncio.sleep(RETRY_SECONDS)

    def _hear(self, beat: users_pb2.KeyBeat) -> None:
        self._beats += 1
        if beat.reset:
            self._reset_at = self._beats
            self._cache.clear()
            self._by_key.clear()
            self._news = None
        for key_id in beat.changed_key_ids:
            self._changed_at[key_id] = self._beats
            self._changed_at.move_to_end(key_id)
            for key in tuple(self._by_key.get(key_id, ())):
                self._forget(key)
            if self._news is not None:
                self._news.add(key_id)
        if beat.reset or beat.changed_key_ids:
            self.news.set()
        while len(self._changed_at) > self._size:
            # Lookups that began before what is dropped here may not be cached.
            self._reset_at = max(self._reset_at, self._changed_at.popitem(last=False)[1])
        self._trusted_until = time.monotonic() + TRUST_SECONDS


def _request(key: CacheKey) -> rbac_pb2.AuthenticateRequest:
    digest, project, organization = key
    if project == _BY_ID:
        return rbac_pb2.AuthenticateRequest(key_id=digest.decode("latin-1"))
    return rbac_pb2.AuthenticateRequest(
        key_digest=digest,
        project_id=project.decode("latin-1"),
        organization_id=organization.decode("latin-1"),
    )


def _cache_key(headers: dict[bytes, bytes]) -> CacheKey:
    authorization = headers.get(b"authorization")
    if authorization:
        scheme, _, credential = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated(MISSING)
    else:
        credential = headers.get(b"x-api-key", b"")
    credential = credential.strip()
    if not credential:
        raise Unauthenticated(MISSING)
    project = headers.get(b"openai-project", b"")
    organization = headers.get(b"openai-organization", b"")
    if max(len(credential), len(project), len(organization)) > CREDENTIAL_BYTES:
        raise Unauthenticated(INCORRECT)
    return auth.digest(credential.decode("latin-1")), project, organization
