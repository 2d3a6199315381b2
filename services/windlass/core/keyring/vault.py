"""A key in the transit engine of HashiCorp Vault or OpenBao, which never hands it out.

Source: https://developer.hashicorp.com/vault/api-docs/secret/transit
"""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from windlass.core.config import VaultTransitSection

TIMEOUT_SECONDS = 10.0
_BAD_REQUEST = 400
_OK = 200
_PLAIN = "vault:"
# Of what is bound to its context. Earlier releases bound nothing, and had no prefix of their own.
_BOUND = "bound:"

# Posts a JSON body and returns status and body of the answer; raises OSError.
Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[tuple[int, bytes]]]


@dataclass(frozen=True)
class TransitKey:
    """Place of a key of a transit engine."""

    address: str
    mount: str
    key: str
    namespace: str = ""


class VaultWrappingKey:
    """Wraps by `transit/encrypt` and unwraps by `transit/decrypt`; Vault rotates versions.

    The key must be of a type that takes associated data, such as Vault's default `aes256-gcm96`.
    """

    def __init__(self, place: TransitKey, token: Callable[[], str], post: Post):
        """`token` is called at each use: an agent of Vault's renews the file that it may read."""
        self._place = place
        self._token = token
        self._post = post

    @property
    def id(self) -> str:
        """Mount and name; versions are Vault's own."""
        return f"vault:{self._place.mount}/{self._place.key}"

    async def wrap(self, key: bytes, *, context: str) -> str:
        """Ask Vault to encrypt; raises OSError."""
        body = {"plaintext": base64.b64encode(key).decode(), **_associated(context)}
        return _BOUND + await self._call("encrypt", body, "ciphertext")

    async def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """Ask Vault to decrypt; raises ValueError or OSError."""
        ciphertext = wrapped.removeprefix(_BOUND)
        if not ciphertext.startswith(_PLAIN):
            raise ValueError("it was not wrapped by Vault")
        bound = _associated(context) if wrapped.startswith(_BOUND) else {}
        plain = await self._call("decrypt", {"ciphertext": ciphertext, **bound}, "plaintext")
        return base64.b64decode(plain)

    async def _call(self, action: str, body: dict[str, str], field: str) -> str:
        place = self._place
        url = f"{place.address.rstrip('/')}/v1/{place.mount}/{action}/{place.key}"
        status, content = await self._post(url, json.dumps(body).encode(), self._headers())
        if status == _BAD_REQUEST and action == "decrypt":
            raise ValueError("Vault cannot decrypt it with this key")
        if status != _OK:
            raise OSError(f"{place.address} answered {status} to {action}")
        try:
            answer: Any = json.loads(content)
            return str(answer["data"][field])
        except (ValueError, TypeError, LookupError) as error:
            raise OSError(f"{place.address} did not answer {action} as Vault does") from error

    def _headers(self) -> dict[str, str]:
        headers = {"X-Vault-Token": self._token(), "Content-Type": "application/json"}
        if self._place.namespace:
            headers["X-Vault-Namespace"] = self._place.namespace
        return headers


def master_of(settings: VaultTransitSection) -> VaultWrappingKey:
    """Return the key that the operator named."""

    def token() -> str:
        if settings.token_file:
            return settings.token_file.read_text().strip()
        return settings.token.get_secret_value()

    async def post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        trusted = str(settings.ca) if settings.ca else True
        try:
            async with httpx.AsyncClient(verify=trusted, timeout=TIMEOUT_SECONDS) as client:
                answer = await client.post(url, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise OSError(f"{settings.address} does not answer: {error}") from error
        return answer.status_code, answer.content

    place = TransitKey(settings.address, settings.mount, settings.key, settings.namespace)
    return VaultWrappingKey(place, token, post)


def _associated(context: str) -> dict[str, str]:
    return {"associated_data": base64.b64encode(context.encode()).decode()}
