"""/v1/organization/workload_identity_providers."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.api.users.v1 import workload_identity_pb2_grpc as rpc
from windlass.bounds import (
    ATTRIBUTE_LENGTH,
    AUDIENCE_LENGTH,
    DESCRIPTION_LENGTH,
    EXPRESSION_LENGTH,
    ISSUER_LENGTH,
    MAX_TRANSFORMATIONS,
    TITLE_LENGTH,
)
from windlass.core.app import App
from windlass.core.oidc.issuers import METADATA_PATH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin.roles.rendering import Order
from windlass.gateway.openai_admin.unsupported import require_unset
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter

Name = Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]
Description = Annotated[str, Field(max_length=DESCRIPTION_LENGTH)]
Issuer = Annotated[str, Field(min_length=1, max_length=ISSUER_LENGTH)]
AudienceName = Annotated[str, Field(min_length=1, max_length=AUDIENCE_LENGTH)]


class Transformation(Body):
    """An attribute, and how it is made of the token's claims."""

    attribute: Annotated[str, Field(min_length=1, max_length=ATTRIBUTE_LENGTH)]
    expression: Annotated[
        str,
        Field(min_length=1, max_length=EXPRESSION_LENGTH, description="CEL over `assertion`."),
    ]


class Discovery(Body):
    """Keys that the issuer is asked for."""

    type: Literal["discovery"]
    discovery_url: str | None = None


class UploadedJwks(Body):
    """Keys that are given once."""

    type: Literal["uploaded_jwks"]
    jwks: dict[str, Any]


Verification = Annotated[Discovery | UploadedJwks, Field(discriminator="type")]
Transformations = Annotated[list[Transformation], Field(max_length=MAX_TRANSFORMATIONS)]


class NewWorkloadProvider(Body):
    """An issuer whose tokens the organization takes."""

    name: Name
    issuer: Issuer
    audience: AudienceName
    type: Literal["oidc"]
    # Without one, by discovery.
    verification: Verification | None = None
    attribute_transformations: Transformations = []
    description: Description = ""
    enabled: bool = True


class WorkloadProviderSettings(Body):
    """Settings of a provider; those left out stay."""

    name: Name | None = None
    issuer: Issuer | None = None
    audience: AudienceName | None = None
    verification: Verification | None = None
    attribute_transformations: Transformations | None = None
    description: Description | None = None
    enabled: bool | None = None


def workload_providers_router(app: App) -> ResourceRouter:
    """Identity providers of the organization."""
    router = ResourceRouter(
        prefix="/organization/workload_identity_providers", tags=["administration"]
    )
    providers = app.clients.stub(rpc.WorkloadIdentityServiceStub)

    @router.post("")
    async def create_workload_identity_provider(body: NewWorkloadProvider) -> Json:
        """A new provider."""
        request = pb.CreateWorkloadProviderRequest(
            name=body.name,
            description=body.description,
            issuer=body.issuer,
            audience=body.audience,
            jwks=_jwks(body.verification, body.issuer),
            attribute_transformations=_pairs(body.attribute_transformations),
            disabled=not body.enabled,
        )
        return _render(await providers.CreateWorkloadProvider(request))

    @router.get("")
    async def list_workload_identity_providers(
        after: After = "", limit: Limit = 0, order: Order = "desc"
    ) -> Json:
        """Providers, by their creation."""
        request = pb.ListWorkloadProvidersRequest(
            after=after, limit=limit, oldest_first=order == "asc"
        )
        answer = await providers.ListWorkloadProviders(request)
        return page(list(map(_render, answer.providers)), answer.has_more)

    @router.get("/{identity_provider_id}")
    async def get_workload_identity_provider(identity_provider_id: str) -> Json:
        """Returns one provider."""
        request = pb.GetWorkloadProviderRequest(identity_provider_id=identity_provider_id)
        return _render(await providers.GetWorkloadProvider(request))

    @router.post("/{identity_provider_id}")
    async def update_workload_identity_provider(
        identity_provider_id: str, body: WorkloadProviderSettings
    ) -> Json:
        """Changes a provider; the tokens that its rules gave end."""
        request = pb.UpdateWorkloadProviderRequest(
            identity_provider_id=identity_provider_id,
            name=body.name,
            issuer=body.issuer,
            audience=body.audience,
            enabled=body.enabled,
        )
        if "description" in body.model_fields_set:
            request.description = body.description or ""
        if body.verification is not None:
            issuer = body.issuer
            if issuer is None and isinstance(body.verification, Discovery):
                asked = pb.GetWorkloadProviderRequest(identity_provider_id=identity_provider_id)
                issuer = (await providers.GetWorkloadProvider(asked)).issuer
            request.jwks = _jwks(body.verification, issuer or "")
        if body.attribute_transformations is not None:
            items = _pairs(body.attribute_transformations)
            request.attribute_transformations.CopyFrom(pb.AttributeTransformations(items=items))
        return _render(await providers.UpdateWorkloadProvider(request))

    @router.delete("/{identity_provider_id}")
    async def delete_workload_identity_provider(identity_provider_id: str) -> Json:
        """Deletes a provider with its rules; the tokens that they gave end."""
        request = pb.DeleteWorkloadProviderRequest(identity_provider_id=identity_provider_id)
        await providers.DeleteWorkloadProvider(request)
        kind = "organization.workload_identity_provider.deleted"
        return {"id": identity_provider_id, "object": kind, "deleted": True}

    return router


def _pairs(items: Sequence[Transformation]) -> list[pb.AttributeTransformation]:
    return [
        pb.AttributeTransformation(attribute=one.attribute, expression=one.expression)
        for one in items
    ]


def _jwks(verification: Discovery | UploadedJwks | None, issuer: str) -> str:
    """The document of keys, empty where the issuer is asked; raises InvalidArgument."""
    if isinstance(verification, UploadedJwks):
        return orjson.dumps(verification.jwks).decode()
    # An issuer is asked at its own address alone.
    if (
        verification is not None
        and verification.discovery_url != issuer.rstrip("/") + METADATA_PATH
    ):
        require_unset(discovery_url=verification.discovery_url)
    return ""


def _render(provider: pb.WorkloadProvider) -> Json:
    verification: Json = {"type": "discovery", "discovery_url": None}
    if provider.jwks:
        verification = {"type": "uploaded_jwks", "jwks": orjson.loads(provider.jwks)}
    return {
        "id": provider.id,
        "object": "organization.workload_identity_provider",
        "name": provider.name,
        "description": provider.description or None,
        "type": "oidc",
        "issuer": provider.issuer,
        "audience": provider.audience,
        "verification": verification,
        "attribute_transformations": [
            {"attribute": one.attribute, "expression": one.expression}
            for one in provider.attribute_transformations
        ],
        "enabled": provider.enabled,
        "created_at": provider.created_at,
        "updated_at": provider.updated_at,
    }
