"""An issuer of OpenID Connect on loopback: discovery, keys that rotate, and tokens.

It stands for GitHub, a cluster or an identity provider, which no test reaches. It has no way to
sign in: its tests ask it for tokens. What fetches from it and verifies is real.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from aiohttp import web
from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from tests.support.environments.certificates import self_signed

LOOPBACK = (ip_network("127.0.0.0/8"),)
AUDIENCE = "https://windlass.example"


def signing_key(algorithm: str = "ES256") -> Key:
    """A new private key for an algorithm, with a `kid` of its own."""
    if algorithm[:2] in ("RS", "PS"):
        return RSAKey.generate_key(2048, auto_kid=True)
    if algorithm[:2] == "ES":
        curve = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[algorithm]
        return ECKey.generate_key(curve, auto_kid=True)
    return OKPKey.generate_key("Ed25519", auto_kid=True)


def jwks(*keys: Key, **fields: Any) -> bytes:
    """The public halves of keys as a JWKS, each with further fields."""
    return json.dumps({"keys": [{**key.as_dict(private=False), **fields} for key in keys]}).encode()


def claims(issuer: str, **changed: Any) -> dict[str, Any]:
    """Claims of a token of five minutes; those that are None are left out."""
    now = int(time.time())
    made = {
        "iss": issuer,
        "aud": AUDIENCE,
        "sub": "repo:acme/app:ref:refs/heads/main",
        "iat": now,
        "nbf": now,
        "exp": now + 300,
        **changed,
    }
    return {name: value for name, value in made.items() if value is not None}


def signed(payload: dict[str, Any], key: Key, *, algorithm: str = "ES256", **header: Any) -> str:
    """A token; `header` changes what is in its header, where None leaves a field out."""
    said = {"alg": algorithm, "kid": key.kid, "typ": "JWT", **header}
    said = {name: value for name, value in said.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jws.serialize_compact(said, json.dumps(payload), key, registry=registry)


@dataclass
class OidcIssuer:
    """A running issuer; what it answers can be replaced."""

    url: str = ""
    keys: list[Key] = field(default_factory=lambda: [signing_key()])
    trust: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    # Paths as they were asked for.
    asked: list[str] = field(default_factory=list)
    # In the place of the answer of a path.
    answers: dict[str, Callable[[], web.StreamResponse]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    # While it is cleared, no answer leaves.
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def token(self, **changed: Any) -> str:
        """A token of the newest key, with changed claims."""
        return signed(claims(self.url, **changed), self.keys[-1])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        await self.released.wait()
        if request.path in self.answers:
            return self.answers[request.path]()
        if request.path == "/.well-known/openid-configuration":
            said = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.metadata}
            return web.json_response(said)
        if request.path == "/jwks":
            return web.Response(body=jwks(*self.keys), content_type="application/json")
        return web.Response(status=404)


@asynccontextmanager
async def oidc_issuer(folder: Path | None = None) -> AsyncIterator[OidcIssuer]:
    """An issuer over http, or over https with a certificate in a folder, while in the block."""
    issuer, tls = OidcIssuer(), None
    if folder is not None:
        certificate, secret = self_signed(folder)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, secret)
        issuer.trust = ssl.create_default_context(cafile=str(certificate))
    issuer.released.set()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", issuer.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    issuer.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
    try:
        yield issuer
    finally:
        await runner.cleanup()
