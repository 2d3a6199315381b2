"""Checks of subject tokens against the provider that is named with them."""

from functools import lru_cache
from typing import Any

from windlass.core.oidc.issuers import OidcIssuers
from windlass.core.oidc.keys import VerificationKeys
from windlass.core.oidc.tokens import TokenRefused, UnverifiedToken, verify
from windlass.users.workloads.domain import WorkloadIssuer


class SubjectTokens:
    """Verifies tokens by the keys that were uploaded, or by those that the issuer has now."""

    def __init__(self, issuers: OidcIssuers):
        self._issuers = issuers

    async def verify(
        self, token: UnverifiedToken, provider: WorkloadIssuer, audience: str
    ) -> dict[str, Any]:
        """The claims of a token for an audience; raises TokenRefused, IssuerUnavailable."""
        if token.issuer != provider.issuer:
            # Before anybody is asked for keys.
            raise TokenRefused("It is of another issuer.")
        issuer = provider.issuer
        if provider.jwks:
            return verify(token, _keys(provider.jwks), issuer=issuer, audience=audience)
        owner = provider.organization_id
        return await self._issuers.verify(token, issuer=issuer, audience=audience, owner=owner)


@lru_cache(maxsize=256)
def _keys(document: str) -> VerificationKeys:
    return VerificationKeys.parse(document.encode())
