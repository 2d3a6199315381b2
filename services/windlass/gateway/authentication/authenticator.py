"""Authentication of requests by API key, without an RPC for a cached key."""

import asyncio

import grpc

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.errors import Unauthenticated, Unavailable, from_rpc
from windlass.core.rpc import auth
from windlass.core.rpc.auth import Principal
from windlass.gateway.authentication.grace import ASK_SECONDS, OutageGrace
from windlass.key_cache import Changed, KeyCache, KnownKey, networks_of

LOOKUPS = 64
CREDENTIAL_BYTES = 512

MISSING = (
    "You didn't provide an API key. Send it in an Authorization header: "
    "Authorization: Bearer YOUR_KEY, or as X-API-Key."
)
INCORRECT = "Incorrect API key provided."
AWAY = "API keys cannot be checked now; try again."

CacheKey = tuple[bytes, bytes, bytes]
# The digest of no key.
_NOBODYS: CacheKey = (b"readiness", b"", b"")
# In place of the project: what comes before it is a key's id. No header holds a NUL.
_BY_ID = b"\0id"


class MadeUpKey(Unauthenticated):
    """A key that was never made, as its form or its checksum tells without a look-up."""


class Authenticator:
    """Authenticates requests by their headers."""

    def __init__(
        self,
        rbac: rbac_pb2_grpc.RbacInternalServiceAsyncStub,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
        *,
        size: int = 50_000,
        grace_seconds: float = 0.0,
    ):
        self._rbac = rbac
        self._keys: KeyCache[CacheKey] = KeyCache(users, self._look_up, size=size, lookups=LOOKUPS)
        self.grace = OutageGrace(self._keys, grace_seconds)
        # Keys that changed since `take_news`; None: any may have.
        self._news: set[str] | None = set()
        self.news = asyncio.Event()

    async def authenticate(self, headers: dict[bytes, bytes], *, graced: bool = False) -> KnownKey:
        """The key of a request; raises Unauthenticated or Unavailable.

        With `graced`, a known key outlasts an outage for the time that the configuration grants.
        """
        credential, key = _cache_key(headers)
        if not graced or not self.grace.knows(key):
            return await self._key(credential, key)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._key(credential, key)
        except (Unavailable, TimeoutError) as error:
            if (accepted := self.grace.after_silence(key)) is not None:
                return accepted
            raise Unavailable(AWAY) from error

    def known(self, headers: dict[bytes, bytes], *, graced: bool = False) -> KnownKey | None:
        """The key of a request that needs no lookup; raises Unauthenticated."""
        credential, key = _cache_key(headers)
        found = self._good(key) or (self.grace.recall(key) if graced else None)
        if found is None:
            _require_form(credential)
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

    async def _key(self, credential: str, key: CacheKey) -> KnownKey:
        if (known := self._good(key)) is not None:
            return known
        _require_form(credential)
        return await self._keys.ask(key)

    async def _look_up(self, key: CacheKey) -> KnownKey:
        try:
            answer = await self._rbac.Authenticate(_request(key), timeout=5)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise Unavailable(AWAY) from error
            raise
        principal = Principal.from_proto(answer.principal)
        networks = networks_of(answer.networks)
        return KnownKey(principal.key_id, principal, answer.expires_at, networks)


def _request(key: CacheKey) -> rbac_pb2.AuthenticateRequest:
    digest, project, organization = key
    if project == _BY_ID:
        return rbac_pb2.AuthenticateRequest(key_id=digest.decode("latin-1"))
    return rbac_pb2.AuthenticateRequest(
        key_digest=digest,
        project_id=project.decode("latin-1"),
        organization_id=organization.decode("latin-1"),
    )


def _require_form(credential: str) -> None:
    # Not before: what is kept as good costs a request nothing more.
    if not auth.may_be_secret(credential):
        raise MadeUpKey(INCORRECT)


def _cache_key(headers: dict[bytes, bytes]) -> tuple[str, CacheKey]:
    """The credential of a request, and what the answer about it is kept by."""
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
    text = credential.decode("latin-1")
    return text, (auth.digest(text), project, organization)
