"""Workloads' own tokens as credentials, by rules that accept them as they are.

The token says whom it is for: its only audience is that of the rule, so that nobody can take it
for another organization's, however many trust its issuer.
"""

from dataclasses import dataclass

from windlass.bearer_tokens import bearer_audience, named_rule
from windlass.core.oidc.tokens import TokenRefused, read
from windlass.core.rpc import auth
from windlass.core.rpc.auth import Principal
from windlass.users.domain import ApiKey
from windlass.users.workloads.giving import ShownCredential, TokenGiver
from windlass.users.workloads.judging import NotExchanged, TokenJudge
from windlass.users.workloads.store import FederationRuleStore

# Nothing of a token is shown to anybody.
REDACTED = "jwt..."


@dataclass(frozen=True, slots=True)
class AcceptedToken:
    """A credential that a token became, and by which rule."""

    key: ApiKey
    rule_id: str


class BearerTokens:
    """Has rows of the keys' table for tokens that are credentials themselves."""

    def __init__(self, rules: FederationRuleStore, judge: TokenJudge, giver: TokenGiver):
        self._rules = rules
        self._judge = judge
        self._giver = giver

    async def accept(self, subject_token: str) -> AcceptedToken | None:
        """A credential that is new or has a new end; None for one that needs neither.

        Raises NotExchanged.
        """
        digest = auth.digest(subject_token)
        if await self._giver.is_settled(digest):
            return None
        try:
            token = read(subject_token)
        except TokenRefused as error:
            raise NotExchanged("subject_token_refused") from error
        rule = await self._rules.accepting(named_rule(token))
        if rule is None:
            raise NotExchanged("unknown_rule")
        tenant = Principal(rule.organization_id, rule.project_id)
        source = await self._judge.source(rule.provider_id, tenant)
        audience = bearer_audience(source.provider.audience, rule.id)
        claims = await self._judge.claims(source, token, audience=audience, principal=tenant)
        await self._judge.fulfilled(source, [rule], claims, tenant)
        # Without the signature, which may have several forms.
        signed = auth.digest(subject_token.rpartition(".")[0])
        shown = ShownCredential(digest, REDACTED, signed)
        key = await self._giver.give(source.provider, rule, int(claims["exp"]), shown)
        return AcceptedToken(key, rule.id)
