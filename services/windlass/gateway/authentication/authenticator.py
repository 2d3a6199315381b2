"""Authentication of requests by API key, without an RPC for a cached key."""

import asyncio

import grpc

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.errors import Unauthenticated, Unavailable
from windlass.core.rpc import auth
from windlass.core.rpc.auth import Principal
from windlass.key_cache import Changed, KeyCache, KnownKey

LOOKUPS = 64
CREDENTIAL_BYTES = 512

MISSING = (
    "You didn't provide an API key. Send it in an Authorization header: "
    "Authorization: Bearer YOUR_KEY, or as X-API-Key."
)
INCORRECT = "Incorrect API key provided."

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
        self._keys: KeyCache[CacheKey] = KeyCache(users, self._look_up, size=size, lookups=LOOKUPS)
        # Keys that changed since `take_news`; None: any may have.
        self._news: set[str] | None = set()
        self.news = asyncio.Event()

    async def authenticate(self, headers: dict[bytes, bytes]) -> Principal:
        """The principal of a request; raises Unauthenticated or Unavailable."""
        return await self._principal(_cache_key(headers))

    def known(self, headers: dict[bytes, bytes]) -> Principal | None:
        """The principal of a request whose key is cached as valid; raises Unauthenticated."""
        return self._good(_cache_key(headers))

    async def recognize(self, key_id: str) -> Principal:
        """The principal of a key that was shown before, such as the maker of a signed URL.

        Raises Unauthenticated or Unavailable.
        """
        return await self._principal((key_id.encode(), _BY_ID, b""))

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
        """For readiness: raises Unavailable while the beats have stopped for longer than 10 s."""
        await self._keys.check()

    async def watch(self) -> None:
        """Follows the watch of keys until cancelled."""
        await self._keys.watch(self._note)

    def _note(self, changed: Changed) -> None:
        if changed is None or self._news is None:
            self._news = None
        else:
            self._news |= changed
        self.news.set()

    def _good(self, key: CacheKey) -> Principal | None:
        kept = self._keys.kept(key)
        return None if kept is None or kept.is_over() else kept.principal

    async def _principal(self, key: CacheKey) -> Principal:
        return self._good(key) or (await self._keys.ask(key)).principal

    async def _look_up(self, key: CacheKey) -> KnownKey:
        try:
            answer = await self._rbac.Authenticate(_request(key), timeout=5)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise Unavailable("API keys cannot be checked now.") from error
            raise
        principal = Principal.from_proto(answer.principal)
        return KnownKey(principal.key_id, principal, answer.expires_at)


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
