"""Issuers by their addresses: their metadata and keys, fetched, kept for a while and refreshed."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from ssl import SSLContext
from typing import Any

from windlass.core import clock, telemetry
from windlass.core.addresses import Network
from windlass.core.oidc.documents import DocumentFetcher, NotFetchable
from windlass.core.oidc.keys import JWKS_BYTES, InvalidJwks, VerificationKeys
from windlass.core.oidc.tokens import (
    JWT,
    LEEWAY_SECONDS,
    LONGEST_LIFE_SECONDS,
    UnknownKey,
    UnverifiedToken,
    verify,
)
from windlass.core.outbound.addresses import UrlRefused

METADATA_PATH = "/.well-known/openid-configuration"
METADATA_BYTES = 64 * 1024
# After these what an issuer said is asked for anew; while it does not respond, the old holds on.
FRESH_SECONDS = 600.0
STALE_SECONDS = 3600.0
# Between two fetches for keys that are unknown, and after one that failed.
REFETCH_SECONDS = 30.0
MAX_ISSUERS = 1000

log = telemetry.logger("oidc")


class IssuerUnavailable(Exception):
    """An issuer whose metadata or keys cannot be had; the text is for whoever configures it."""


class IssuerRefused(Exception):
    """An issuer that does not take what it was asked with, such as a code."""


class _Issuer:
    """Knowledge of one issuer; one fetch at a time, which all who need it share."""

    def __init__(self, url: str, owner: str, fetcher: DocumentFetcher):
        self.metadata: Mapping[str, Any] = {}
        self.keys = VerificationKeys()
        self.fetching: asyncio.Task[None] | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._failure = ""
        self._url = url
        self._owner = owner
        self._fetcher = fetcher

    async def refresh(self, *, older_than: float, pause_seconds: float = REFETCH_SECONDS) -> None:
        """Fetches what is older, unless that was tried just now; raises IssuerUnavailable."""
        now = clock.now()
        is_due = now - self._fetched_at > older_than and now - self._tried_at > pause_seconds
        if self.fetching is None and is_due:
            self._tried_at = now
            self.fetching = asyncio.create_task(self._fetch())
        if self.fetching is not None:
            # Whoever leaves while it goes on takes it from nobody else.
            await asyncio.shield(self.fetching)
        if clock.now() - self._fetched_at > STALE_SECONDS:
            raise IssuerUnavailable(f"The issuer's keys cannot be had: {self._failure}.")

    async def _fetch(self) -> None:
        try:
            address = self._url.rstrip("/") + METADATA_PATH
            metadata = await self._fetcher.fetch_json(self._owner, address, METADATA_BYTES)
            if metadata.get("issuer") != self._url:
                raise NotFetchable(f"{address} does not name {self._url} as its issuer")
            named = str(metadata.get("jwks_uri", ""))
            jwks = await self._fetcher.fetch(self._owner, named, JWKS_BYTES)
            self.keys, self.metadata = VerificationKeys.parse(jwks), metadata
            self._fetched_at = clock.now()
        except (NotFetchable, InvalidJwks) as error:
            self._failure = str(error)
            log.warning("issuer_not_fetched", issuer=self._url, error=self._failure)
        finally:
            self.fetching = None


class OidcIssuers:
    """Issuers that tenants trust, each apart for each of its owners.

    An owner is whoever trusts the issuer, such as an organization's id: none learns by the time
    of an answer that another trusts the same issuer, nor makes its keys be fetched for another.
    """

    def __init__(self, allowed: Sequence[Network], *, tls: SSLContext | None = None):
        """`allowed` networks may be connected to beside public ones, and by http too."""
        self._fetcher = DocumentFetcher(allowed, tls=tls)
        # The one that was asked for last is at the end.
        self._issuers: OrderedDict[tuple[str, str], _Issuer] = OrderedDict()

    async def metadata(self, url: str, *, owner: str) -> Mapping[str, Any]:
        """Metadata that an issuer gives of itself, such as its `token_endpoint`; hostile.

        Raises IssuerUnavailable.
        """
        issuer = self._issuer(url, owner)
        await issuer.refresh(older_than=FRESH_SECONDS)
        return issuer.metadata

    async def ask(self, url: str, *, owner: str, **call: Any) -> dict[str, Any]:
        """Answer of an endpoint of an issuer; `call` is as in `DocumentFetcher.fetch`.

        Raises IssuerRefused, IssuerUnavailable.
        """
        try:
            return await self._fetcher.fetch_json(owner, url, METADATA_BYTES, **call)
        except NotFetchable as error:
            if HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise IssuerRefused(f"The issuer refused it: {error}.") from error
            raise IssuerUnavailable(f"The issuer did not answer: {error}.") from error

    async def verify(
        self,
        token: UnverifiedToken,
        *,
        issuer: str,
        audience: str,
        owner: str,
        types: Collection[str] = JWT,
        longest_life: int = LONGEST_LIFE_SECONDS,
        leeway: int = LEEWAY_SECONDS,
        refetch: float = REFETCH_SECONDS,
    ) -> dict[str, Any]:
        """The claims of a token that an issuer signed; see `tokens.verify`.

        A key that is unknown has the issuer's keys fetched once more, but not again and again:
        `refetch` seconds lie between.
        Raises TokenRefused, IssuerUnavailable.
        """
        known = self._issuer(issuer, owner)
        await known.refresh(older_than=FRESH_SECONDS)

        def verified() -> dict[str, Any]:
            return verify(
                token,
                known.keys,
                issuer=issuer,
                audience=audience,
                types=types,
                longest_life=longest_life,
                leeway=leeway,
            )

        with suppress(UnknownKey):
            return verified()
        await known.refresh(older_than=0.0, pause_seconds=refetch)
        return verified()

    def _issuer(self, url: str, owner: str) -> _Issuer:
        found = self._issuers.pop((owner, url), None) or _Issuer(url, owner, self._fetcher)
        self._issuers[owner, url] = found
        if len(self._issuers) > MAX_ISSUERS:
            self._issuers.popitem(last=False)
        return found

    def admit(self, url: str) -> None:
        """Returns if an issuer may have this URL, whatever its host resolves to later.

        Raises UrlRefused.
        """
        self._fetcher.admit(url)
        if "?" in url:
            raise UrlRefused("must have no query (?)")

    async def close(self) -> None:
        """Ends the fetches that are under way."""
        under_way = [one.fetching for one in self._issuers.values() if one.fetching is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._fetcher.close()
