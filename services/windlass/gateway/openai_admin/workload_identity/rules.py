"""/v1/organization/workload_identity_providers/{identity_provider_id}/federation_rules."""

from typing import Annotated, Literal

import orjson
from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.api.users.v1 import workload_identity_pb2_grpc as rpc
from windlass.bounds import (
    ATTRIBUTE_VALUE_LENGTH,
    DESCRIPTION_LENGTH,
    MAX_KEY_SCOPES,
    MAX_MATCHERS,
    TITLE_LENGTH,
    USER_ID_LENGTH,
)
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin.keys import Scopes
from windlass.gateway.openai_admin.roles.rendering import Order
from windlass.gateway.openai_admin.scopes import permissions
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import OPENAI_PROJECT_ROLES, permissions_of

# What OpenAI's names of scopes stand for, as in keys of service accounts.
_POWER = permissions_of((OPENAI_PROJECT_ROLES["member"],))
Id = Annotated[str, Field(min_length=1, max_length=USER_ID_LENGTH)]
RuleName = Annotated[str, Field(max_length=TITLE_LENGTH)]
Description = Annotated[str, Field(max_length=DESCRIPTION_LENGTH)]
Text = Annotated[StrictStr, Field(max_length=ATTRIBUTE_VALUE_LENGTH)]
Matchers = Annotated[
    dict[str, StrictBool | StrictInt | StrictFloat | Text],
    Field(min_length=1, max_length=MAX_MATCHERS),
]


class ServiceAccountDefault(Body):
    """All that the service account may do."""

    type: Literal["service_account_default"]


class Restricted(Body):
    """Some of what the service account may do."""

    type: Literal["restricted"]
    scopes: Annotated[Scopes, Field(min_length=1, max_length=MAX_KEY_SCOPES)]


Permissions = Annotated[ServiceAccountDefault | Restricted, Field(discriminator="type")]


class NewFederationRule(Body):
    """A rule by which tokens become a service account's."""

    project_id: Id
    service_account_id: Id
    attribute_matchers: Matchers
    # Without any, all of the service account.
    permissions: Permissions | None = None
    name: RuleName = ""
    description: Description = ""
    enabled: bool = True
    # Ours, not OpenAI's: tokens of its own audience are taken in the place of a key.
    accepts_bearer: bool = False


class FederationRuleSettings(Body):
    """Settings of a rule; those left out stay."""

    attribute_matchers: Matchers | None = None
    permissions: Permissions | None = None
    name: RuleName | None = None
    description: Description | None = None
    enabled: bool | None = None
    accepts_bearer: bool | None = None


def federation_rules_router(app: App) -> ResourceRouter:
    """Federation rules of an identity provider."""
    router = ResourceRouter(
        prefix="/organization/workload_identity_providers/{identity_provider_id}/federation_rules",
        tags=["administration"],
    )
    rules = app.clients.stub(rpc.WorkloadIdentityServiceStub)

    @router.post("")
    async def create_federation_rule(identity_provider_id: str, body: NewFederationRule) -> Json:
        """A new rule."""
        request = pb.CreateFederationRuleRequest(
            identity_provider_id=identity_provider_id,
            project_id=body.project_id,
            service_account_id=body.service_account_id,
            name=body.name,
            description=body.description,
            attribute_matchers=_matchers(body.attribute_matchers),
            scopes=_scopes(body.permissions),
            disabled=not body.enabled,
            accepts_bearer=body.accepts_bearer,
        )
        return _render(await rules.CreateFederationRule(request))

    @router.get("")
    async def list_federation_rules(
        identity_provider_id: str,
        after: After = "",
        limit: Limit = 0,
        order: Order = "desc",
        service_account_id: str = "",
    ) -> Json:
        """Rules of a provider, by their creation."""
        request = pb.ListFederationRulesRequest(
            identity_provider_id=identity_provider_id,
            service_account_id=service_account_id,
            after=after,
            limit=limit,
            oldest_first=order == "asc",
        )
        answer = await rules.ListFederationRules(request)
        return page(list(map(_render, answer.rules)), answer.has_more)

    @router.get("/{federation_rule_id}")
    async def get_federation_rule(identity_provider_id: str, federation_rule_id: str) -> Json:
        """Returns one rule."""
        request = pb.GetFederationRuleRequest(
            identity_provider_id=identity_provider_id, federation_rule_id=federation_rule_id
        )
        return _render(await rules.GetFederationRule(request))

    @router.post("/{federation_rule_id}")
    async def update_federation_rule(
        identity_provider_id: str, federation_rule_id: str, body: FederationRuleSettings
    ) -> Json:
        """Changes a rule; the tokens that it gave end."""
        request = pb.UpdateFederationRuleRequest(
            identity_provider_id=identity_provider_id,
            federation_rule_id=federation_rule_id,
            enabled=body.enabled,
            accepts_bearer=body.accepts_bearer,
        )
        for name in ("name", "description"):
            if name in body.model_fields_set:
                setattr(request, name, getattr(body, name) or "")
        if body.attribute_matchers is not None:
            request.attribute_matchers = _matchers(body.attribute_matchers)
        if body.permissions is not None:
            request.scopes.CopyFrom(pb.RuleScopes(names=_scopes(body.permissions)))
        return _render(await rules.UpdateFederationRule(request))

    @router.delete("/{federation_rule_id}")
    async def delete_federation_rule(identity_provider_id: str, federation_rule_id: str) -> Json:
        """Deletes a rule; the tokens that it gave end."""
        request = pb.DeleteFederationRuleRequest(
            identity_provider_id=identity_provider_id, federation_rule_id=federation_rule_id
        )
        await rules.DeleteFederationRule(request)
        kind = "organization.workload_identity_federation_rule.deleted"
        return {"id": federation_rule_id, "object": kind, "deleted": True}

    return router


def _matchers(matchers: Matchers) -> str:
    return orjson.dumps(matchers).decode()


def _scopes(wanted: ServiceAccountDefault | Restricted | None) -> list[str]:
    return permissions(wanted.scopes, _POWER) if isinstance(wanted, Restricted) else []


def _render(rule: pb.FederationRule) -> Json:
    given: Json = {"type": "service_account_default"}
    if rule.scopes:
        given = {"type": "restricted", "scopes": list(rule.scopes)}
    # Beside what OpenAI has: only where it says something.
    ours: Json = {"accepts_bearer": True} if rule.accepts_bearer else {}
    return {
        **ours,
        "id": rule.id,
        "object": "organization.workload_identity_federation_rule",
        "workload_identity_provider_id": rule.identity_provider_id,
        "project_id": rule.project_id,
        "service_account_id": rule.service_account_id,
        "name": rule.name or None,
        "description": rule.description or None,
        "attribute_matchers": orjson.loads(rule.attribute_matchers),
        "permissions": given,
        "enabled": rule.enabled,
        "created_at": rule.created_at,
        "updated_at": rule.updated_at,
    }
