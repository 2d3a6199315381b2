"""The servicer of identity providers."""

from dataclasses import replace
from typing import Any

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, fitting, page_size
from windlass.core.errors import (
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    Unavailable,
)
from windlass.core.ids import new_id
from windlass.core.oidc.issuers import OidcIssuers
from windlass.core.outbound.addresses import UrlRefused
from windlass.core.rpc import audited
from windlass.core.rpc.auth import Principal, current
from windlass.policy import ORGANIZATION_OWNER, ORGANIZATION_ROLES, PLATFORM
from windlass.users.domain import ROLE_NUMBERS, require_grant, role_name, valid_title
from windlass.users.groups.store import GroupStore
from windlass.users.roles.domain import require_power
from windlass.users.sign_in.domain import (
    IdentityProvider,
    valid_domains,
    valid_groups,
    valid_scopes,
    valid_text,
)
from windlass.users.sign_in.issuer_answers import IssuerAnswers
from windlass.users.sign_in.providers.store import ProviderStore

SCOPES = ("profile", "email")


class IdentityProvidersServicer(rpc.IdentityProvidersServiceServicer):
    """IdentityProvidersService."""

    def __init__(
        self,
        providers: ProviderStore,
        groups: GroupStore,
        issuers: OidcIssuers,
        answers: IssuerAnswers,
    ):
        self._providers = providers
        self._groups = groups
        self._issuers = issuers
        self._answers = answers

    async def CreateIdentityProvider(
        self, request: pb.CreateIdentityProviderRequest, context: Any
    ) -> pb.IdentityProvider:
        """Stores a provider once its issuer has told its configuration."""
        principal = current()
        if request.of_installation and not principal.may(PLATFORM):
            raise PermissionDenied("Only a platform administrator sets those of the installation.")
        # Whoever chooses the issuer decides who people are.
        require_grant(principal, ORGANIZATION_OWNER)
        now = now_seconds()
        provider = IdentityProvider(
            id=new_id("idp_"),
            organization_id="" if request.of_installation else principal.organization_id,
            name=valid_title(request.name, "name"),
            issuer=self._issuer(request.issuer),
            client_id=valid_text(request.client_id, "client_id"),
            scopes=valid_scopes(request.scopes or SCOPES),
            domains=valid_domains(request.domains),
            default_role=role_name(request.default_role, "default_role")
            if request.default_role
            else "",
            groups_claim=valid_text(request.groups_claim, "groups_claim", empty=True),
            person_claim=valid_text(request.person_claim, "person_claim", empty=True),
            groups=valid_groups(request.groups),
            enabled=True,
            created_at=now,
            updated_at=now,
        )
        await self._require_power(principal, provider)
        secret = valid_text(request.client_secret, "client_secret", empty=True)
        try:
            await self._answers.metadata(provider)
        except Unavailable as error:
            raise FailedPrecondition(
                error.message, reason="issuer_unavailable", param="issuer"
            ) from error
        await self._providers.create(provider, secret)
        audited.change(None, provider, resource=provider.id)
        return _message(provider)

    async def GetIdentityProvider(
        self, request: pb.GetIdentityProviderRequest, context: Any
    ) -> pb.IdentityProvider:
        """Returns one provider of the organization or of the installation."""
        found = await self._providers.seen(current().organization_id, request.provider_id)
        return _message(found)

    async def ListIdentityProviders(
        self, request: pb.ListIdentityProvidersRequest, context: Any
    ) -> pb.ListIdentityProvidersResponse:
        """Providers of the organization and of the installation, newest first."""
        size = page_size(request.limit)
        rows = await self._providers.list(
            current().organization_id, after=request.after, limit=size + 1
        )
        page, more = cut(rows, size)
        providers, more = fitting(map(_message, page), more)
        return pb.ListIdentityProvidersResponse(providers=providers, has_more=more)

    async def UpdateIdentityProvider(
        self, request: pb.UpdateIdentityProviderRequest, context: Any
    ) -> pb.IdentityProvider:
        """Changes a provider."""
        principal = current()
        provider = await self._own(principal, request.provider_id)
        await self._require_power(principal, _changed(provider, request))
        secret = None
        if request.HasField("client_secret"):
            secret = valid_text(request.client_secret, "client_secret", empty=True)
        changed = await self._providers.update(
            provider.organization_id,
            provider.id,
            lambda found: _changed(found, request),
            secret=secret,
        )
        audited.change(provider, changed)
        return _message(changed)

    async def DeleteIdentityProvider(
        self, request: pb.DeleteIdentityProviderRequest, context: Any
    ) -> pb.DeleteIdentityProviderResponse:
        """Removes a provider, and ends its sessions."""
        provider = await self._own(current(), request.provider_id)
        await self._providers.delete(provider.organization_id, provider.id)
        audited.change(provider, None)
        return pb.DeleteIdentityProviderResponse()

    async def _own(self, principal: Principal, provider_id: str) -> IdentityProvider:
        """A provider that the caller may change; raises NotFound, PermissionDenied."""
        provider = await self._providers.seen(principal.organization_id, provider_id)
        require_grant(principal, ORGANIZATION_OWNER)
        if not provider.organization_id and not principal.may(PLATFORM):
            raise PermissionDenied("Only a platform administrator sets those of the installation.")
        return provider

    def _issuer(self, url: str) -> str:
        try:
            self._issuers.admit(url)
        except UrlRefused as error:
            raise InvalidArgument(f"issuer {error}.", param="issuer") from error
        return url

    async def _require_power(self, principal: Principal, provider: IdentityProvider) -> None:
        """Raises unless the caller may give all that people get by the provider."""
        for param in ("default_role", "groups", "person_claim"):
            if not provider.organization_id and getattr(provider, param):
                raise InvalidArgument(
                    "A provider of the installation gives no role and no group, and knows no "
                    "directory: its people are invited by organizations.",
                    param=param,
                )
        if provider.groups and not provider.groups_claim:
            raise InvalidArgument("groups need a groups_claim.", param="groups_claim")
        if provider.default_role and provider.person_claim:
            raise InvalidArgument(
                "A provider whose people a directory knows gives no role to others: set a "
                "default_role or a person_claim.",
                param="default_role",
            )
        if provider.default_role:
            if provider.default_role not in ORGANIZATION_ROLES:
                raise InvalidArgument(
                    f"{provider.default_role} is a role of a project.", param="default_role"
                )
            require_grant(principal, provider.default_role)
        granted = await self._groups.permissions(
            principal.organization_id, set(provider.groups.values())
        )
        require_power(principal, granted)


def _changed(
    provider: IdentityProvider, request: pb.UpdateIdentityProviderRequest
) -> IdentityProvider:
    """The provider as a request asks; raises InvalidArgument."""
    if request.HasField("name"):
        provider = replace(provider, name=valid_title(request.name, "name"))
    if request.HasField("client_id"):
        provider = replace(provider, client_id=valid_text(request.client_id, "client_id"))
    if request.HasField("scopes"):
        provider = replace(provider, scopes=valid_scopes(request.scopes.names))
    if request.HasField("domains"):
        provider = replace(provider, domains=valid_domains(request.domains.names))
    if request.HasField("default_role"):
        role = role_name(request.default_role, "default_role") if request.default_role else ""
        provider = replace(provider, default_role=role)
    if request.HasField("groups_claim"):
        claim = valid_text(request.groups_claim, "groups_claim", empty=True)
        provider = replace(provider, groups_claim=claim)
    if request.HasField("person_claim"):
        claim = valid_text(request.person_claim, "person_claim", empty=True)
        provider = replace(provider, person_claim=claim)
    if request.HasField("groups"):
        provider = replace(provider, groups=valid_groups(request.groups.groups))
    if request.HasField("enabled"):
        provider = replace(provider, enabled=request.enabled)
    return provider


def _message(provider: IdentityProvider) -> pb.IdentityProvider:
    role = ROLE_NUMBERS.get(provider.default_role, users_pb2.ROLE_UNSPECIFIED)
    return pb.IdentityProvider(
        id=provider.id,
        organization_id=provider.organization_id,
        name=provider.name,
        issuer=provider.issuer,
        client_id=provider.client_id,
        scopes=provider.scopes,
        domains=provider.domains,
        default_role=role,
        groups_claim=provider.groups_claim,
        person_claim=provider.person_claim,
        groups=provider.groups,
        enabled=provider.enabled,
        created_at=provider.created_at,
        updated_at=provider.updated_at,
    )
