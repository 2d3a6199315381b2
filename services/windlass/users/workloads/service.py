"""The servicer of identity providers and federation rules."""

from dataclasses import replace
from typing import Any

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.api.users.v1 import workload_identity_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.db.paging import page_size, read_fitting
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.oidc.issuers import OidcIssuers
from windlass.core.outbound.addresses import UrlRefused
from windlass.core.rpc import audited
from windlass.core.rpc.auth import Principal, current
from windlass.users.domain import KEYS_TOPIC, valid_title
from windlass.users.keys.restrictions import valid_scopes
from windlass.users.scope import project_in_scope, sees_organization
from windlass.users.workloads import messages
from windlass.users.workloads.authority import RuleAuthority
from windlass.users.workloads.clusters import IssuingClusters
from windlass.users.workloads.domain import (
    FederationRule,
    WorkloadIssuer,
    unknown_rule,
    valid_audience,
    valid_jwks,
    valid_matchers,
    valid_text,
    valid_transformations,
)
from windlass.users.workloads.store import FederationRuleStore, WorkloadProviderStore

# A JWKS may have 256 KiB, and the matchers of a rule half of that.
AT_ONCE, RULES_AT_ONCE = 4, 20


class WorkloadIdentityServicer(rpc.WorkloadIdentityServiceServicer):
    """WorkloadIdentityService."""

    def __init__(
        self,
        providers: WorkloadProviderStore,
        rules: FederationRuleStore,
        clusters: IssuingClusters,
        authority: RuleAuthority,
        issuers: OidcIssuers,
        wake: Wake,
    ):
        self._providers = providers
        self._rules = rules
        self._clusters = clusters
        self._authority = authority
        self._issuers = issuers
        self._wake = wake

    async def CreateWorkloadProvider(
        self, request: pb.CreateWorkloadProviderRequest, context: Any
    ) -> pb.WorkloadProvider:
        """A new provider of the caller's organization."""
        principal, now = current(), now_seconds()
        pairs = [(one.attribute, one.expression) for one in request.attribute_transformations]
        provider = WorkloadIssuer(
            id=new_id("wip_"),
            organization_id=principal.organization_id,
            name=valid_title(request.name, "name"),
            description=valid_text(request.description, "description"),
            issuer=self._issuer(request.issuer),
            audience=valid_audience(request.audience),
            jwks=valid_jwks(request.jwks),
            transformations=valid_transformations(pairs),
            enabled=not request.disabled,
            created_at=now,
            updated_at=now,
            changed_by=principal.user_id,
            rests_on=await self._authority.for_provider(principal),
        )
        made = await self._providers.create(provider)
        audited.change(None, _shown(made), resource=made.id)
        return messages.provider(made)

    def _issuer(self, url: str) -> str:
        try:
            self._issuers.admit(url)
        except UrlRefused as error:
            raise InvalidArgument(f"issuer {error}.", param="issuer") from error
        return url

    async def GetWorkloadProvider(
        self, request: pb.GetWorkloadProviderRequest, context: Any
    ) -> pb.WorkloadProvider:
        """Returns one provider."""
        found = await self._providers.get(current().organization_id, request.identity_provider_id)
        return messages.provider(found)

    async def ListWorkloadProviders(
        self, request: pb.ListWorkloadProvidersRequest, context: Any
    ) -> pb.ListWorkloadProvidersResponse:
        """Providers of the organization, by their creation."""
        organization_id = current().organization_id

        async def read(after: str, limit: int) -> Any:
            return await self._providers.list(
                organization_id, oldest_first=request.oldest_first, after=after, limit=limit
            )

        page, more = await read_fitting(
            read,
            messages.provider,
            lambda shown: shown.id,
            after=request.after,
            size=page_size(request.limit),
            at_once=AT_ONCE,
        )
        return pb.ListWorkloadProvidersResponse(providers=page, has_more=more)

    async def UpdateWorkloadProvider(
        self, request: pb.UpdateWorkloadProviderRequest, context: Any
    ) -> pb.WorkloadProvider:
        """Changes a provider; the tokens that its rules gave end."""
        principal = current()
        people = await self._authority.for_provider(principal)
        said: dict[str, Any] = {"changed_by": principal.user_id, "rests_on": people}
        if request.HasField("name"):
            said["name"] = valid_title(request.name, "name")
        if request.HasField("description"):
            said["description"] = valid_text(request.description, "description")
        if request.HasField("issuer"):
            said["issuer"] = self._issuer(request.issuer)
        if request.HasField("audience"):
            said["audience"] = valid_audience(request.audience)
        if request.HasField("jwks"):
            said["jwks"] = valid_jwks(request.jwks)
        if request.HasField("attribute_transformations"):
            items = request.attribute_transformations.items
            said["transformations"] = valid_transformations(
                (one.attribute, one.expression) for one in items
            )
        if request.HasField("enabled"):
            said["enabled"] = request.enabled
        changed, ended = await self._providers.update(
            principal.organization_id,
            request.identity_provider_id,
            lambda found: replace(found, **said, updated_at=now_seconds()),
        )
        audited.change(None, _shown(changed), resource=changed.id)
        self._tell(ended)
        return messages.provider(changed)

    def _tell(self, ended: Any) -> None:
        audited.also(ended)
        self._wake.touch(KEYS_TOPIC)

    async def DeleteWorkloadProvider(
        self, request: pb.DeleteWorkloadProviderRequest, context: Any
    ) -> pb.DeleteWorkloadProviderResponse:
        """Removes a provider with its rules; the tokens that they gave end."""
        principal = current()
        await self._authority.for_provider(principal)
        provider_id = request.identity_provider_id
        ended = await self._providers.delete(principal.organization_id, provider_id)
        audited.change({"id": provider_id}, None, resource=provider_id)
        self._tell(ended)
        return pb.DeleteWorkloadProviderResponse()

    async def CreateFederationRule(
        self, request: pb.CreateFederationRuleRequest, context: Any
    ) -> pb.FederationRule:
        """A new rule for a service account that the caller administers."""
        principal, now = current(), now_seconds()
        project_id = project_in_scope(principal, request.project_id)
        account_id = request.service_account_id
        of_cluster = await self._find(principal, request.identity_provider_id, project_id)
        role = await self._authority.role_of(principal.organization_id, project_id, account_id)
        scopes = valid_scopes(request.scopes, role)
        rule = FederationRule(
            id=new_id("wir_"),
            provider_id=request.identity_provider_id,
            organization_id=principal.organization_id,
            project_id=project_id,
            service_account_id=account_id,
            name=valid_text(request.name, "name"),
            description=valid_text(request.description, "description"),
            matchers=valid_matchers(request.attribute_matchers),
            scopes=scopes,
            enabled=not request.disabled,
            created_at=now,
            updated_at=now,
            changed_by=principal.user_id,
            rests_on=await self._authority.for_rule(principal, project_id, account_id, scopes),
            accepts_bearer=request.accepts_bearer,
        )
        made = await self._rules.create(rule, of_cluster=of_cluster)
        audited.change(None, _of_rule(made), resource=made.id)
        return messages.rule(made)

    async def _find(self, principal: Principal, provider_id: str, project_id: str = "") -> bool:
        """Looks for a provider of the caller's organization; returns True if it is a cluster that
        the project, or without one any of the organization, is assigned to. Raises NotFound.
        """
        cluster = await self._clusters.find(provider_id)
        if cluster is not None and cluster.has(principal.organization_id, project_id):
            return True
        await self._providers.get(principal.organization_id, provider_id)
        return False

    async def _seen(
        self, principal: Principal, request: pb.GetFederationRuleRequest | Any
    ) -> FederationRule:
        """A rule that the caller may see; raises NotFound."""
        rule = await self._rules.get(
            principal.organization_id, request.identity_provider_id, request.federation_rule_id
        )
        if not sees_organization(principal) and rule.project_id != principal.project_id:
            raise unknown_rule(rule.id)
        return rule

    async def GetFederationRule(
        self, request: pb.GetFederationRuleRequest, context: Any
    ) -> pb.FederationRule:
        """Returns one rule."""
        return messages.rule(await self._seen(current(), request))

    async def ListFederationRules(
        self, request: pb.ListFederationRulesRequest, context: Any
    ) -> pb.ListFederationRulesResponse:
        """Rules of a provider that the caller may see, by their creation."""
        principal = current()
        await self._find(principal, request.identity_provider_id)
        project_id = "" if sees_organization(principal) else principal.require_project()

        async def read(after: str, limit: int) -> Any:
            return await self._rules.list(
                principal.organization_id,
                request.identity_provider_id,
                project_id=project_id,
                account_id=request.service_account_id,
                oldest_first=request.oldest_first,
                after=after,
                limit=limit,
            )

        page, more = await read_fitting(
            read,
            messages.rule,
            lambda shown: shown.id,
            after=request.after,
            size=page_size(request.limit),
            at_once=RULES_AT_ONCE,
        )
        return pb.ListFederationRulesResponse(rules=page, has_more=more)

    async def UpdateFederationRule(
        self, request: pb.UpdateFederationRuleRequest, context: Any
    ) -> pb.FederationRule:
        """Changes a rule; the tokens that it gave end."""
        principal = current()
        rule = await self._writable(principal, request)
        said: dict[str, Any] = {}
        for name in ("name", "description"):
            if request.HasField(name):
                said[name] = valid_text(getattr(request, name), name)
        if request.HasField("attribute_matchers"):
            said["matchers"] = valid_matchers(request.attribute_matchers)
        if request.HasField("scopes"):
            project, account = rule.project_id, rule.service_account_id
            role = await self._authority.role_of(rule.organization_id, project, account)
            said["scopes"] = valid_scopes(request.scopes.names, role)
        if request.HasField("enabled"):
            said["enabled"] = request.enabled
        if request.HasField("accepts_bearer"):
            said["accepts_bearer"] = request.accepts_bearer
        changed = replace(rule, **said, changed_by=principal.user_id, updated_at=now_seconds())
        people = await self._authority.for_rule(
            principal, rule.project_id, rule.service_account_id, changed.scopes
        )
        changed = replace(changed, rests_on=people)
        ended = await self._rules.replace(rule, changed)
        audited.change(_of_rule(rule), _of_rule(changed), resource=rule.id)
        self._tell(ended)
        return messages.rule(changed)

    async def _writable(self, principal: Principal, request: Any) -> FederationRule:
        """A rule that the caller may see, and has the power of; raises NotFound."""
        rule = await self._seen(principal, request)
        project_in_scope(principal, rule.project_id)
        await self._authority.for_rule(
            principal, rule.project_id, rule.service_account_id, rule.scopes
        )
        return rule

    async def DeleteFederationRule(
        self, request: pb.DeleteFederationRuleRequest, context: Any
    ) -> pb.DeleteFederationRuleResponse:
        """Removes a rule; the tokens that it gave end."""
        rule = await self._writable(current(), request)
        ended = await self._rules.delete(rule)
        audited.change(_of_rule(rule), None, resource=rule.id)
        self._tell(ended)
        return pb.DeleteFederationRuleResponse()


def _shown(provider: WorkloadIssuer) -> dict[str, str]:
    """The part of a provider that the audit log tells; its keys are too large for it."""
    return {"id": provider.id, "name": provider.name, "issuer": provider.issuer}


def _of_rule(rule: FederationRule) -> dict[str, object]:
    """The part of a rule that the audit log tells; its matchers are too large for it."""
    return {
        "id": rule.id,
        "identity_provider_id": rule.provider_id,
        "project_id": rule.project_id,
        "service_account_id": rule.service_account_id,
        "scopes": list(rule.scopes),
        "enabled": rule.enabled,
        "accepts_bearer": rule.accepts_bearer,
    }
