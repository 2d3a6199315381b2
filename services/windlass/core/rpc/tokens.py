"""Signed tokens: principals by gateways; service calls and clients' access by any service.

Each process makes its own Ed25519 key pair; the private half never leaves it.
The public half is a row of `core_signing_keys`, so a process that can write the
database is trusted and no other is. Keys rotate long before they expire.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from windlass.core import clock
from windlass.core.db import Database, metadata
from windlass.core.errors import Unauthenticated
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.model_scope import ModelScope

KEY_SECONDS = 24 * 3600
ROTATE_SECONDS = 8 * 3600
TOKEN_SECONDS = 300

keys = sa.Table(
    "core_signing_keys",
    metadata,
    sa.Column("kid", sa.Text, primary_key=True),
    # `gateway` may sign principals; every kind may sign service calls, of which some are of
    # `gateway` and `tuning` alone.
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("public_jwk", sa.JSON, nullable=False),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
)


class TokenAuthority:
    """Signs this process's tokens and verifies everybody's."""

    def __init__(self, database: Database, *, kind: str, name: str):
        self._database = database
        self._kind = kind
        self._name = name
        self._key: OKPKey | None = None
        self._rotate_at = 0.0
        self._signed: OrderedDict[object, tuple[str, float]] = OrderedDict()
        self._verified: OrderedDict[str, tuple[dict[str, Any], float]] = OrderedDict()
        self._public: dict[str, tuple[OKPKey, str, float]] = {}

    async def rotate(self) -> None:
        """Makes and publishes a new key when the present one is due; drops expired rows."""
        if self._key is not None and clock.now() < self._rotate_at:
            return
        key = OKPKey.generate_key("Ed25519", auto_kid=True)
        row = {
            "kid": key.kid,
            "kind": self._kind,
            "public_jwk": key.as_dict(private=False),
            "expires_at": clock.now_seconds() + KEY_SECONDS,
        }
        async with self._database.begin() as connection:
            await connection.execute(keys.delete().where(keys.c.expires_at < clock.now_seconds()))
            await connection.execute(keys.insert().values(row))
        self._key = key
        self._rotate_at = clock.now() + ROTATE_SECONDS
        self._signed.clear()

    def sign_principal(self, principal: Principal) -> str:
        """The principal as a token of five minutes; the same one while it is fresh."""
        claims = {
            "aud": "principal",
            "org": principal.organization_id,
            "project": principal.project_id,
            "user": principal.user_id,
            "key": principal.key_id,
            "roles": list(principal.roles),
            "permissions": sorted(principal.permissions),
            "models": principal.models.patterns if principal.models is not None else (),
            "weakened": principal.is_weakened,
            "fresh_until": principal.fresh_until,
        }
        return self._sign(principal, claims)

    def sign_service(self) -> str:
        """Signs a proof that this process is one of ours."""
        return self._sign("service", {"aud": "service", "sub": self._name})

    def sign_access(self, claims: Mapping[str, str], *, expires_at: int) -> str:
        """A token for a client to show until then; who may do what is looked up when it does."""
        return self._encode({**claims, "aud": "access", "exp": expires_at})

    def _sign(self, cache_key: object, claims: dict[str, Any]) -> str:
        now = clock.now()
        cached = self._signed.get(cache_key)
        if cached is not None and cached[1] > now:
            return cached[0]
        token = self._encode(claims | {"exp": int(now) + TOKEN_SECONDS})
        self._remember(self._signed, cache_key, (token, now + TOKEN_SECONDS / 2))
        return token

    def _encode(self, claims: dict[str, Any]) -> str:
        if self._key is None:
            raise Unauthenticated("This process has no signing key yet.")
        header = {"alg": "Ed25519", "kid": self._key.kid}
        claims = claims | {"iat": clock.now_seconds()}
        return jwt.encode(header, claims, self._key, algorithms=["Ed25519"])

    async def verify_principal(self, token: str) -> Principal:
        """The principal in a token; raises Unauthenticated unless a gateway signed it."""
        claims = await self._verify(token, audience="principal", kinds=("gateway",))
        return Principal(
            organization_id=claims["org"],
            project_id=claims["project"],
            user_id=claims["user"],
            key_id=claims["key"],
            roles=tuple(claims["roles"]),
            permissions=frozenset(claims["permissions"]),
            # Of a gateway of the release before, which narrows nobody to models.
            models=ModelScope.of(claims.get("models", ())),
            is_weakened=claims.get("weakened", False),
            fresh_until=claims.get("fresh_until"),
        )

    async def verify_service(self, token: str, *, kinds: Collection[str] = ()) -> str:
        """The name of the calling process, of one of the kinds if any; raises Unauthenticated."""
        claims = await self._verify(token, audience="service", kinds=kinds)
        return str(claims["sub"])

    async def verify_access(self, token: str) -> dict[str, Any]:
        """The claims given to `sign_access`; raises Unauthenticated unless we signed them."""
        return await self._verify(token, audience="access", kinds=())

    async def _verify(self, token: str, *, audience: str, kinds: Collection[str]) -> dict[str, Any]:
        cached = self._verified.get(token)
        if cached is not None and cached[1] > clock.now():
            claims = cached[0]
        else:
            claims = await self._decode(token)
            self._remember(self._verified, token, (claims, float(claims["exp"])))
        if claims["aud"] != audience or (kinds and claims["signer"] not in kinds):
            raise Unauthenticated("The token is for another purpose.", reason="invalid_token")
        return claims

    async def _decode(self, token: str) -> dict[str, Any]:
        try:
            kid = jws.extract_compact(token.encode()).headers()["kid"]
            key, kind, _ = await self._find_key(kid)
            decoded = jwt.decode(token, key, algorithms=["Ed25519"])
        except (JoseError, KeyError, ValueError) as error:
            raise Unauthenticated("The token is not valid.", reason="invalid_token") from error
        if decoded.claims.get("exp", 0) < clock.now():
            raise Unauthenticated("The token has expired.", reason="invalid_token")
        return {**decoded.claims, "signer": kind}

    async def _find_key(self, kid: str) -> tuple[OKPKey, str, float]:
        found = self._public.get(kid)
        if found is None:
            async with self._database.autocommit() as connection:
                row = (await connection.execute(keys.select().where(keys.c.kid == kid))).first()
            if row is None:
                raise KeyError(kid)
            found = (OKPKey.import_key(row.public_jwk), row.kind, float(row.expires_at))
            self._public[kid] = found
        if found[2] < clock.now():
            raise KeyError(kid)
        return found

    @staticmethod
    def _remember(cache: OrderedDict[Any, Any], key: Any, value: Any, *, most: int = 4096) -> None:
        cache[key] = value
        while len(cache) > most:
            cache.popitem(last=False)
