"""The exchange of a workload's token for one of a service account.

It may be shown again and again while it holds, since Kubernetes and most issuers give a workload
one token for all its life. What it is exchanged for ends with it at the latest, and with the rule.
"""

from dataclasses import dataclass

from windlass.core.oidc.tokens import TokenRefused, read
from windlass.core.rpc import auth
from windlass.users.domain import ApiKey
from windlass.users.workloads.giving import ShownCredential, TokenGiver
from windlass.users.workloads.judging import NotExchanged, TokenJudge, owner_of
from windlass.users.workloads.store import FederationRuleStore


@dataclass(frozen=True, slots=True)
class ExchangedToken:
    """A token that was given, its secret, and by which rule."""

    key: ApiKey
    secret: str
    rule_id: str


class TokenExchange:
    """Exchanges tokens of workloads for tokens of service accounts."""

    def __init__(
        self, rules: FederationRuleStore, judge: TokenJudge, giver: TokenGiver, *, key_prefix: str
    ):
        self._rules = rules
        self._judge = judge
        self._giver = giver
        self._key_prefix = key_prefix

    async def exchange(
        self, provider_id: str, account_id: str, subject_token: str
    ) -> ExchangedToken:
        """A new token of a service account; raises NotExchanged."""
        source = await self._judge.source(provider_id)
        provider = source.provider
        principal = owner_of(provider)
        try:
            token = read(subject_token)
        except TokenRefused as error:
            raise NotExchanged("subject_token_refused", principal) from error
        claims = await self._judge.claims(
            source, token, audience=provider.audience, principal=principal
        )
        rules = await self._rules.of_account(provider, account_id)
        rule = await self._judge.fulfilled(source, rules, claims, principal)
        secret = auth.new_secret(self._key_prefix)
        shown = ShownCredential(auth.digest(secret), auth.redact(secret, self._key_prefix))
        key = await self._giver.give(provider, rule, int(claims["exp"]), shown)
        return ExchangedToken(key, secret, rule.id)
