"""The checks of a workload's token, whatever becomes of it then."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.core.oidc.issuers import IssuerUnavailable
from windlass.core.oidc.tokens import TokenRefused, UnverifiedToken
from windlass.core.rpc.auth import Principal
from windlass.users.workloads.clusters import IssuingCluster, IssuingClusters
from windlass.users.workloads.domain import (
    FederationRule,
    WorkloadIssuer,
    attributes_of,
    first_fulfilled,
)
from windlass.users.workloads.expressions import thread
from windlass.users.workloads.store import WorkloadProviderStore
from windlass.users.workloads.verification import SubjectTokens


class NotExchanged(Exception):
    """A token that gives nothing. Its `reason` is for the owners of the provider alone."""

    def __init__(self, reason: str, principal: Principal | None = None):
        super().__init__(reason)
        self.reason = reason
        # The tenant whose provider or rule was named.
        self.principal = principal


@dataclass(frozen=True, slots=True)
class TokenSource:
    """A provider that may be asked, and the cluster that it is, if it is one."""

    provider: WorkloadIssuer
    cluster: IssuingCluster | None


class TokenJudge:
    """Judges tokens by providers and rules."""

    def __init__(
        self, providers: WorkloadProviderStore, clusters: IssuingClusters, tokens: SubjectTokens
    ):
        self._providers = providers
        self._clusters = clusters
        self._tokens = tokens

    async def source(self, provider_id: str, principal: Principal | None = None) -> TokenSource:
        """An enabled provider; raises NotExchanged."""
        cluster = await self._clusters.find(provider_id)
        provider = cluster.provider if cluster else await self._providers.find(provider_id)
        if provider is None:
            raise NotExchanged("unknown_provider", principal)
        if not provider.enabled:
            raise NotExchanged("provider_disabled", principal or owner_of(provider))
        return TokenSource(provider, cluster)

    async def claims(
        self,
        source: TokenSource,
        token: UnverifiedToken,
        *,
        audience: str,
        principal: Principal | None,
    ) -> dict[str, Any]:
        """The claims of a token of a provider's issuer for an audience; raises NotExchanged."""
        try:
            return await self._tokens.verify(token, source.provider, audience)
        except TokenRefused as error:
            raise NotExchanged("subject_token_refused", principal) from error
        except IssuerUnavailable as error:
            raise NotExchanged("issuer_unavailable", principal) from error

    async def fulfilled(
        self,
        source: TokenSource,
        rules: Sequence[FederationRule],
        claims: dict[str, Any],
        principal: Principal | None,
    ) -> FederationRule:
        """The oldest rule that a token with such claims fulfils; raises NotExchanged."""
        run = asyncio.get_running_loop().run_in_executor
        attributes = await run(thread(), attributes_of, claims, source.provider)
        if source.cluster is not None:
            rules = [rule for rule in rules if source.cluster.admits(rule, attributes)]
        rule = first_fulfilled(rules, attributes)
        if rule is None:
            raise NotExchanged("no_rule_fulfilled", principal)
        return rule


def owner_of(provider: WorkloadIssuer) -> Principal | None:
    """The organization of a provider; None of a cluster's."""
    return Principal(provider.organization_id) if provider.organization_id else None
