"""The keepers of tenants' own keys, as the port of wrapping keys has them."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import aiohttp

from windlass.bounds import EXTERNAL_KEY_LENGTH
from windlass.core.config import ExternalKeysSection
from windlass.core.errors import InvalidArgument
from windlass.core.keyring import Envelope
from windlass.core.keyring.aws import AwsWrappingKey, KmsKey
from windlass.core.keyring.blocking import BlockingCalls
from windlass.core.keyring.pkcs11 import Pkcs11WrappingKey, TokenKey
from windlass.core.keyring.vault import TransitKey, VaultWrappingKey
from windlass.core.keyring.wrapping import WrappingKey
from windlass.core.outbound.addresses import OutboundAddresses, UrlRefused, checked_url, parsed
from windlass.core.outbound.connections import OutboundConnections, why_failed
from windlass.users.encryption.domain import OwnKey

# For everything: name, connection, TLS, request and answer.
SECONDS = 10.0
# Of one key, so that a keeper that is slow on purpose holds up nobody else's.
_THREADS = 2
# Clients and sessions that are kept open.
_KEPT = 64
_ANSWER_BYTES = 64 * 1024


class KeyKeepers:
    """Reaches external keys: AWS by their roles, Vault at public addresses, tokens by name."""

    def __init__(self, settings: ExternalKeysSection, credentials: Envelope):
        self._settings = settings
        self._credentials = credentials
        self._addresses = OutboundAddresses(settings.allowed_networks)
        self._connections = OutboundConnections(self._addresses, {"User-Agent": "Windlass-Keys"})
        self._kept: OrderedDict[str, WrappingKey] = OrderedDict()

    def admit(self, organization_id: str, kind: str, place: Mapping[str, str]) -> None:
        """Returns if an organization may use a key of this place; raises InvalidArgument."""
        settings = self._settings
        if kind == "aws" and not settings.aws:
            raise InvalidArgument("The operator does not allow keys of AWS KMS.", param="type")
        if kind == "vault":
            self._admit_address(place["address"])
        if kind == "pkcs11":
            token = settings.tokens.get(place["token_name"])
            # The same for a name that another organization has.
            if token is None or organization_id not in token.organizations:
                raise InvalidArgument(
                    "The operator has no token of this name for the organization.",
                    param="token_name",
                )

    def seal(self, key_id: str, credential: str) -> bytes:
        """Returns a keeper's credential as it is stored; empty for none."""
        if not credential:
            return b""
        return self._credentials.seal(credential.encode(), context=key_id)

    def of(self, key: OwnKey) -> WrappingKey:
        """The key as a wrapping key; raises OSError where the operator does not allow it now."""
        try:
            # Once more: the operator's mind may have changed since the key was named.
            self.admit(key.organization_id, key.kind, key.place)
        except InvalidArgument as error:
            raise OSError(error.message.rstrip(".")) from error
        kept = self._kept.get(key.id) or self._made(key)
        self._kept[key.id] = kept
        self._kept.move_to_end(key.id)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return kept

    async def close(self) -> None:
        """Ends what is under way."""
        await self._connections.close()

    def _made(self, key: OwnKey) -> WrappingKey:
        place = key.place
        match key.kind:
            case "aws":
                kms = KmsKey(
                    place["kms_arn"],
                    endpoint=self._settings.kms_endpoint,
                    sts_endpoint=self._settings.sts_endpoint,
                    role_arn=place["role_arn"],
                    external_id=place["external_id"],
                )
                return AwsWrappingKey(kms, BlockingCalls("AWS KMS", threads=_THREADS))
            case "vault":
                return self._vault(key)
            case _:
                token = self._settings.tokens[place["token_name"]]
                labels = (place["key_label"],)
                where = TokenKey(token.module or Path(), token.token, labels)
                return Pkcs11WrappingKey(where, token.user_pin)

    def _vault(self, key: OwnKey) -> WrappingKey:
        token = self._credentials.open(key.credential, context=key.id).decode()

        async def post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
            try:
                with self._connections.of(key.organization_id) as session:
                    async with (
                        asyncio.timeout(SECONDS),
                        session.post(
                            url, data=body, headers=headers, allow_redirects=False
                        ) as answer,
                    ):
                        return answer.status, await _bounded(answer)
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise OSError(why_failed(error, url, SECONDS)) from error

        names = ("address", "mount", "key", "namespace")
        transit = TransitKey(**{name: key.place[name] for name in names})
        return VaultWrappingKey(transit, lambda: token, post)

    def _admit_address(self, address: str) -> None:
        schemes = ("https", "http") if self._settings.allow_http else ("https",)
        try:
            parts = checked_url(address, schemes=schemes, length=EXTERNAL_KEY_LENGTH)
        except UrlRefused as error:
            raise InvalidArgument(f"address {error}.", param="address") from error
        literal = parsed(parts.hostname or "")
        if literal is not None and not self._addresses.permits(literal):
            raise InvalidArgument(
                "address must be a public one. An operator can allow others in "
                "external_keys.allowed_networks.",
                param="address",
            )


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > _ANSWER_BYTES:
            raise ValueError("more than Vault answers")
    return bytes(content)
