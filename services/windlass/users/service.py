"""The tenant-facing servicer of users."""

from typing import Any

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core import auth
from windlass.core.auth import Principal, current
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.paging import cut, page_size
from windlass.users import messages
from windlass.users.domain import (
    KEY_SECONDS_MOST,
    SECRET_BYTES,
    ApiKey,
    Member,
    require_grant,
    require_scope,
    role_name,
    valid_secret_name,
    valid_title,
    valid_user,
)
from windlass.users.keys import KeyStore, unknown_key
from windlass.users.secrets import SecretStore
from windlass.users.store import TenantStore, now, unknown_project

_SCOPE_OWNERS = {"platform_admin", "organization_owner"}


def _owns_organization(principal: Principal) -> bool:
    return not _SCOPE_OWNERS.isdisjoint(principal.roles)


def _sees_organization(principal: Principal) -> bool:
    return any(role.startswith(("organization", "platform")) for role in principal.roles)


def _project_in_scope(principal: Principal, project_id: str) -> str:
    """The project that a call may administer; an organization's owner may any of its own."""
    if _owns_organization(principal) or project_id == principal.project_id:
        return project_id
    if not project_id:
        return principal.require_project()
    raise PermissionDenied("This concerns another project.", param="project_id")


class UsersServicer(rpc.UsersServiceServicer):
    """UsersService."""

    def __init__(
        self, tenants: TenantStore, keys: KeyStore, secrets: SecretStore, *, key_prefix: str
    ):
        self._tenants = tenants
        self._keys = keys
        self._secrets = secrets
        self._key_prefix = key_prefix

    async def CreateOrganization(
        self, request: pb.CreateOrganizationRequest, context: Any
    ) -> pb.Organization:
        """A new tenant with a default project; the caller is its first owner."""
        title = valid_title(request.title)
        return messages.organization(
            await self._tenants.create_organization(title, owner=current().user_id)
        )

    async def ListOrganizations(
        self, request: pb.ListOrganizationsRequest, context: Any
    ) -> pb.ListOrganizationsResponse:
        """The caller's own, or all for a platform administrator."""
        principal = current()
        only = None if principal.may("platform.write") else principal.organization_id
        size = page_size(request.limit)
        rows = await self._tenants.organizations(only, after=request.after, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListOrganizationsResponse(
            organizations=[messages.organization(row) for row in page], has_more=more
        )

    async def GetOrganization(
        self, request: pb.GetOrganizationRequest, context: Any
    ) -> pb.Organization:
        """One organization that the caller belongs to."""
        wanted = request.organization_id
        if not current().may("platform.write") and wanted != current().organization_id:
            wanted = ""
        return messages.organization(await self._tenants.organization(wanted))

    async def DeleteOrganization(
        self, request: pb.DeleteOrganizationRequest, context: Any
    ) -> pb.DeleteOrganizationResponse:
        """Ends a tenant; never the caller's own, which would lock the installation."""
        if request.organization_id == current().organization_id:
            raise InvalidArgument(
                "You cannot delete the organization that you act in.", param="organization_id"
            )
        await self._tenants.organization(request.organization_id)
        await self._tenants.delete_organization(request.organization_id)
        return pb.DeleteOrganizationResponse()

    async def CreateProject(self, request: pb.CreateProjectRequest, context: Any) -> pb.Project:
        """A new project of the caller's organization."""
        title = valid_title(request.title)
        return messages.project(
            await self._tenants.create_project(current().organization_id, title)
        )

    async def ListProjects(
        self, request: pb.ListProjectsRequest, context: Any
    ) -> pb.ListProjectsResponse:
        """All of the organization for its owners and readers, their own for project members."""
        principal = current()
        size = page_size(request.limit)
        rows = await self._tenants.projects(
            principal.organization_id,
            only="" if _sees_organization(principal) else principal.require_project(),
            after=request.after,
            limit=size + 1,
            archived=request.include_archived,
        )
        page, more = cut(rows, size)
        return pb.ListProjectsResponse(
            projects=[messages.project(row) for row in page], has_more=more
        )

    async def GetProject(self, request: pb.GetProjectRequest, context: Any) -> pb.Project:
        """One project that the caller may see."""
        principal = current()
        wanted = request.project_id
        if not _sees_organization(principal) and wanted != principal.project_id:
            raise unknown_project(wanted)
        return messages.project(await self._tenants.project(principal.organization_id, wanted))

    async def ArchiveProject(self, request: pb.ArchiveProjectRequest, context: Any) -> pb.Project:
        """Ends a project's use; its rows stay for accounting."""
        project = await self._tenants.project(current().organization_id, request.project_id)
        if project.is_default:
            raise InvalidArgument("The default project cannot be archived.", param="project_id")
        return messages.project(
            await self._tenants.archive_project(current().organization_id, project.id)
        )

    async def PutMember(self, request: pb.PutMemberRequest, context: Any) -> pb.Member:
        """Adds a member or changes its role."""
        principal = current()
        role = role_name(request.role)
        user_id = valid_user(request.user_id)
        project_id = await self._scope(_project_in_scope(principal, request.project_id))
        require_scope(role, project_id)
        require_grant(principal.roles, role)
        await self._require_power(project_id, user_id)
        member = Member(principal.organization_id, project_id, user_id, role, now())
        return messages.member(await self._tenants.put_member(member))

    async def ListMembers(
        self, request: pb.ListMembersRequest, context: Any
    ) -> pb.ListMembersResponse:
        """Members of the organization, or of one project."""
        principal = current()
        wanted = request.project_id
        size = page_size(request.limit)
        rows = await self._tenants.members(
            principal.organization_id,
            await self._scope(
                wanted if _sees_organization(principal) else _project_in_scope(principal, wanted)
            ),
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListMembersResponse(members=[messages.member(row) for row in page], has_more=more)

    async def RemoveMember(
        self, request: pb.RemoveMemberRequest, context: Any
    ) -> pb.RemoveMemberResponse:
        """Removes a member; its keys in that scope stop working."""
        principal = current()
        user_id = valid_user(request.user_id)
        project_id = await self._scope(_project_in_scope(principal, request.project_id))
        await self._require_power(project_id, user_id)
        await self._tenants.remove_member(principal.organization_id, project_id, user_id)
        return pb.RemoveMemberResponse()

    async def _scope(self, project_id: str) -> str:
        """The project itself, empty for the organization; raises NotFound for a foreign one."""
        if project_id:
            await self._tenants.project(current().organization_id, project_id)
        return project_id

    async def _require_power(self, project_id: str, user_id: str) -> None:
        """Raises PermissionDenied for a person whose role is above the caller's."""
        principal = current()
        held = await self._tenants.roles_of(principal.organization_id, project_id, user_id)
        for role in sorted(held):
            require_grant(principal.roles, role)

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: Any
    ) -> pb.CreateApiKeyResponse:
        """A new key, at most as powerful as its maker; the secret is shown here alone."""
        principal = current()
        role = role_name(request.role or pb.ROLE_PROJECT_MEMBER)
        project_id = _project_in_scope(principal, request.project_id)
        if role.startswith("project") and not project_id:
            project_id = principal.require_project()
        require_scope(role, project_id)
        require_grant(principal.roles, role)
        if project_id:
            project = await self._tenants.project(principal.organization_id, project_id)
            if project.archived_at:
                raise InvalidArgument("The project is archived.", param="project_id")
        if not 0 <= request.expires_in <= KEY_SECONDS_MOST:
            raise InvalidArgument("expires_in must lie within ten years.", param="expires_in")
        secret = auth.new_secret(self._key_prefix)
        key = ApiKey(
            id=new_id("key_"),
            name=valid_title(request.name, "name"),
            organization_id=principal.organization_id,
            project_id=project_id,
            user_id=principal.user_id,
            role=role,
            redacted=auth.redact(secret, self._key_prefix),
            created_at=now(),
            expires_at=now() + request.expires_in if request.expires_in else 0,
            revoked_at=0,
            last_used_at=0,
        )
        await self._keys.create(key, auth.digest(secret))
        return pb.CreateApiKeyResponse(key=messages.api_key(key), secret=secret)

    async def ListApiKeys(
        self, request: pb.ListApiKeysRequest, context: Any
    ) -> pb.ListApiKeysResponse:
        """Owners see the keys of their scope, members their own."""
        principal = current()
        size = page_size(request.limit)
        rows = await self._keys.list(
            principal.organization_id,
            project_id=await self._scope(_project_in_scope(principal, request.project_id)),
            user_id=principal.user_id if principal.roles == ("project_member",) else "",
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListApiKeysResponse(keys=[messages.api_key(row) for row in page], has_more=more)

    async def RevokeApiKey(self, request: pb.RevokeApiKeyRequest, context: Any) -> pb.ApiKey:
        """Ends a key within the caller's scope."""
        principal = current()
        key = await self._keys.get(principal.organization_id, request.key_id)
        if not _owns_organization(principal):
            foreign = key.project_id != principal.project_id
            is_member = principal.roles == ("project_member",)
            if foreign or (is_member and key.user_id != principal.user_id):
                raise unknown_key(key.id)
        require_grant(principal.roles, key.role)
        return messages.api_key(await self._keys.revoke(principal.organization_id, key.id))

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Any) -> pb.WhoAmIResponse:
        """The caller, spelled out."""
        principal = current()
        response = pb.WhoAmIResponse(
            principal=principal.to_proto(),
            organization=messages.organization(
                await self._tenants.organization(principal.organization_id)
            ),
        )
        if principal.project_id:
            project = await self._tenants.project(principal.organization_id, principal.project_id)
            response.project.CopyFrom(messages.project(project))
        if principal.key_id and not principal.may("platform.write"):
            key = await self._keys.get(principal.organization_id, principal.key_id)
            response.key.CopyFrom(messages.api_key(key))
        return response

    async def PutSecret(self, request: pb.PutSecretRequest, context: Any) -> pb.Secret:
        """Stores a secret of the caller's project; write-only."""
        if not 1 <= len(request.value) <= SECRET_BYTES:
            raise InvalidArgument(f"A secret has 1 to {SECRET_BYTES} bytes.", param="value")
        return messages.secret(
            await self._secrets.put(
                current().require_project(), valid_secret_name(request.name), request.value
            )
        )

    async def ListSecrets(
        self, request: pb.ListSecretsRequest, context: Any
    ) -> pb.ListSecretsResponse:
        """Names and dates, never values."""
        rows = await self._secrets.list(current().require_project())
        return pb.ListSecretsResponse(secrets=[messages.secret(row) for row in rows])

    async def DeleteSecret(
        self, request: pb.DeleteSecretRequest, context: Any
    ) -> pb.DeleteSecretResponse:
        """Removes a secret of the caller's project."""
        await self._secrets.delete(current().require_project(), valid_secret_name(request.name))
        return pb.DeleteSecretResponse()
