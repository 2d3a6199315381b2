"""A master key in the transit engine of HashiCorp Vault or OpenBao, which never hands it out.

Source: https://developer.hashicorp.com/vault/api-docs/secret/transit
"""

import base64
from typing import Any

import httpx

from windlass.core.config import VaultTransitSection

TIMEOUT_SECONDS = 10.0
_BAD_REQUEST = 400


class VaultMasterKey:
    """Wraps by `transit/encrypt` and unwraps by `transit/decrypt`; Vault rotates versions."""

    def __init__(self, settings: VaultTransitSection):
        self._settings = settings

    @property
    def id(self) -> str:
        """Mount and name; versions are Vault's own."""
        return f"vault:{self._settings.mount}/{self._settings.key}"

    async def wrap(self, key: bytes) -> str:
        """Ask Vault to encrypt; raises OSError."""
        answer = await self._call("encrypt", {"plaintext": base64.b64encode(key).decode()})
        return str(answer["ciphertext"])

    async def unwrap(self, wrapped: str) -> bytes:
        """Ask Vault to decrypt; raises ValueError or OSError."""
        if not wrapped.startswith("vault:"):
            raise ValueError("it was not wrapped by Vault")
        answer = await self._call("decrypt", {"ciphertext": wrapped})
        return base64.b64decode(str(answer["plaintext"]))

    async def _call(self, action: str, body: dict[str, str]) -> dict[str, Any]:
        settings = self._settings
        url = f"{settings.address.rstrip('/')}/v1/{settings.mount}/{action}/{settings.key}"
        try:
            async with httpx.AsyncClient(
                verify=str(settings.ca) if settings.ca else True, timeout=TIMEOUT_SECONDS
            ) as client:
                answer = await client.post(url, json=body, headers=self._headers())
        except httpx.HTTPError as error:
            raise OSError(f"{settings.address} does not answer: {error}") from error
        if answer.status_code == _BAD_REQUEST and action == "decrypt":
            raise ValueError("Vault cannot decrypt it with this key")
        if not answer.is_success:
            raise OSError(f"{settings.address} answered {answer.status_code} to {action}")
        data: dict[str, Any] = answer.json()["data"]
        return data

    def _headers(self) -> dict[str, str]:
        settings = self._settings
        # Read anew each time: an agent of Vault's renews the file.
        token = (
            settings.token_file.read_text().strip()
            if settings.token_file
            else settings.token.get_secret_value()
        )
        headers = {"X-Vault-Token": token}
        if settings.namespace:
            headers["X-Vault-Namespace"] = settings.namespace
        return headers
