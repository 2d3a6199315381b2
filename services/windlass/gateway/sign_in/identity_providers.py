"""/v1/organization/identity_providers."""

from typing import Annotated

from pydantic import Field, SecretStr

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.bounds import (
    MAX_PROVIDER_DOMAINS,
    MAX_PROVIDER_GROUPS,
    MAX_PROVIDER_SCOPES,
    PROVIDER_GROUP_LENGTH,
    PROVIDER_TEXT_LENGTH,
    TITLE_LENGTH,
)
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.admin.members import role_number
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

Text = Annotated[str, Field(max_length=PROVIDER_TEXT_LENGTH)]
Secret = Annotated[SecretStr, Field(max_length=PROVIDER_TEXT_LENGTH)]
Scopes = Annotated[list[Text], Field(max_length=MAX_PROVIDER_SCOPES)]
Domains = Annotated[list[Text], Field(max_length=MAX_PROVIDER_DOMAINS)]
Groups = Annotated[
    dict[
        Annotated[str, Field(max_length=PROVIDER_GROUP_LENGTH)],
        Annotated[str, Field(max_length=IDENTIFIER_LENGTH)],
    ],
    Field(
        max_length=MAX_PROVIDER_GROUPS,
        description="From a value of groups_claim to the id of a group.",
    ),
]


class NewProvider(Body):
    """An issuer that people may sign in by."""

    name: Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]
    issuer: Text
    client_id: Text
    client_secret: Secret = SecretStr("")
    scopes: Annotated[Scopes, Field(description="Beside openid; none: profile and email.")] = []
    domains: Annotated[Domains, Field(description="Of verified addresses; none: any.")] = []
    default_role: Annotated[
        str, Field(description="Of new people; empty: only who was invited comes in.")
    ] = ""
    groups_claim: Text = ""
    groups: Groups = {}
    person_claim: Annotated[
        Text,
        Field(
            description="Has the userName or externalId of people whom the directory provisions; "
            "empty: those need an invite too."
        ),
    ] = ""
    of_installation: Annotated[
        bool, Field(description="For every organization (platform administrators).")
    ] = False


class ChangedProvider(Body):
    """Changes of a provider; the rest stays."""

    name: Annotated[str | None, Field(min_length=1, max_length=TITLE_LENGTH)] = None
    client_id: Text | None = None
    client_secret: Secret | None = None
    scopes: Scopes | None = None
    domains: Domains | None = None
    default_role: str | None = None
    groups_claim: Text | None = None
    groups: Groups | None = None
    person_claim: Text | None = None
    enabled: bool | None = None


def identity_providers_router(app: App) -> ResourceRouter:
    """Identity providers of the organization, and those of the installation."""
    router = ResourceRouter(prefix="/organization/identity_providers", tags=["sign-in"])
    providers = app.clients.stub(rpc.IdentityProvidersServiceStub)

    @router.post("")
    async def create_identity_provider(body: NewProvider) -> Json:
        """A new provider; its issuer is asked for its configuration first."""
        request = pb.CreateIdentityProviderRequest(
            name=body.name,
            issuer=body.issuer,
            client_id=body.client_id,
            client_secret=body.client_secret.get_secret_value(),
            scopes=body.scopes,
            domains=body.domains,
            groups_claim=body.groups_claim,
            groups=body.groups,
            person_claim=body.person_claim,
            of_installation=body.of_installation,
        )
        if body.default_role:
            request.default_role = role_number(body.default_role, "default_role")
        return _render(await providers.CreateIdentityProvider(request))

    @router.get("")
    async def list_identity_providers(after: After = "", limit: Limit = 0) -> Json:
        """Providers, newest first."""
        request = pb.ListIdentityProvidersRequest(after=after, limit=limit)
        answer = await providers.ListIdentityProviders(request)
        return page([_render(one) for one in answer.providers], answer.has_more)

    @router.get("/{provider_id}")
    async def get_identity_provider(provider_id: str) -> Json:
        """Returns one provider."""
        request = pb.GetIdentityProviderRequest(provider_id=provider_id)
        return _render(await providers.GetIdentityProvider(request))

    @router.post("/{provider_id}")
    async def update_identity_provider(provider_id: str, body: ChangedProvider) -> Json:
        """Changes a provider; sessions by one that is disabled end."""
        return _render(await providers.UpdateIdentityProvider(_change(provider_id, body)))

    @router.delete("/{provider_id}")
    async def delete_identity_provider(provider_id: str) -> Json:
        """Deletes a provider, and ends the sessions by it."""
        request = pb.DeleteIdentityProviderRequest(provider_id=provider_id)
        await providers.DeleteIdentityProvider(request)
        return {"id": provider_id, "object": "identity_provider.deleted", "deleted": True}

    return router


def _change(provider_id: str, body: ChangedProvider) -> pb.UpdateIdentityProviderRequest:
    request = pb.UpdateIdentityProviderRequest(provider_id=provider_id)
    for name in ("name", "client_id", "groups_claim", "person_claim", "enabled"):
        value = getattr(body, name)
        if value is not None:
            setattr(request, name, value)
    if body.client_secret is not None:
        request.client_secret = body.client_secret.get_secret_value()
    if body.scopes is not None:
        request.scopes.CopyFrom(pb.ProviderNames(names=body.scopes))
    if body.domains is not None:
        request.domains.CopyFrom(pb.ProviderNames(names=body.domains))
    if body.groups is not None:
        request.groups.CopyFrom(pb.ProviderGroups(groups=body.groups))
    if body.default_role is not None:
        request.default_role = role_number(body.default_role, "default_role")
    return request


def _render(provider: pb.IdentityProvider) -> Json:
    fields = plain(provider, "identity_provider")
    if fields["default_role"] == "unspecified":
        fields["default_role"] = None
    return fields
