"""The servicer of exchanges, which tells strangers one thing alone, and owners what happened."""

from typing import Any

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.api.users.v1 import workload_identity_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.errors import PermissionDenied
from windlass.core.rpc import audited, auth
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.interceptor import AuditSink
from windlass.users.domain import ApiKey
from windlass.users.workloads.bearers import BearerTokens
from windlass.users.workloads.exchange import TokenExchange
from windlass.users.workloads.judging import NotExchanged
from windlass.users.workloads.store import FederationRuleStore

METHOD = "/windlass.api.users.v1.TokenExchangeService/ExchangeToken"
ACCEPT = "/windlass.api.users.v1.TokenExchangeService/AcceptBearer"
# Whoever asks is unknown, so that nothing else is said, whatever is there.
REFUSAL = (
    "This token is not exchanged: the provider, the service account, the token or the rule for it "
    "is missing or does not fit. An owner of the organization finds the reason in its audit log."
)

log = telemetry.logger("users.exchange")


class TokenExchangeServicer(rpc.TokenExchangeServiceServicer):
    """TokenExchangeService."""

    def __init__(
        self,
        exchange: TokenExchange,
        bearers: BearerTokens,
        rules: FederationRuleStore,
        audit: AuditSink,
    ):
        self._exchange = exchange
        self._bearers = bearers
        self._rules = rules
        self._audit = audit

    async def ExchangeToken(
        self, request: pb.ExchangeTokenRequest, context: Any
    ) -> pb.ExchangeTokenResponse:
        """A token of a service account; an event of the organization, given or not."""
        try:
            given = await self._exchange.exchange(
                request.identity_provider_id, request.service_account_id, request.subject_token
            )
        except NotExchanged as error:
            raise self._refuse(METHOD, error, request.client_address) from error
        audited.also([given.rule_id])
        await self._record(METHOD, given.key, request)
        return pb.ExchangeTokenResponse(
            access_token=given.secret, expires_in=given.key.expires_at - now_seconds()
        )

    async def AcceptBearer(
        self, request: pb.AcceptBearerRequest, context: Any
    ) -> pb.AcceptBearerResponse:
        """Makes a token a credential; an event of the organization where it was none, or not."""
        try:
            given = await self._bearers.accept(request.subject_token)
        except NotExchanged as error:
            raise self._refuse(ACCEPT, error, request.client_address) from error
        if given is not None:
            audited.change(None, None, resource=given.rule_id)
            await self._record(ACCEPT, given.key, request)
        return pb.AcceptBearerResponse()

    async def FingerprintRules(
        self, request: pb.FingerprintRulesRequest, context: Any
    ) -> pb.FingerprintRulesResponse:
        """Fingerprints of the rules that accept tokens as they are."""
        found, more = await self._rules.fingerprints()
        return pb.FingerprintRulesResponse(fingerprints=found, has_more=more)

    def _refuse(self, method: str, error: NotExchanged, address: str) -> PermissionDenied:
        log.info("token_not_exchanged", reason=error.reason, cause=str(error.__cause__ or ""))
        if error.principal is not None:
            refusal = PermissionDenied(REFUSAL, reason=error.reason)
            self._audit.refuse(error.principal, method.lstrip("/"), refusal, address)
        return PermissionDenied(REFUSAL, reason="token_not_exchanged")

    async def _record(
        self,
        method: str,
        key: ApiKey,
        request: pb.ExchangeTokenRequest | pb.AcceptBearerRequest,
    ) -> None:
        principal = Principal(
            key.organization_id, key.project_id, user_id=key.user_id, key_id=key.id
        )
        auth.enter(principal=principal)
        auth.client_address.set(request.client_address)
        self._audit.record(method, request, "OK")
        await self._audit.kept()
