"""The tenant-facing servicer of users."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import SECRET_BYTES
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current
from windlass.residency.rule import checked, require_stores
from windlass.users import messages
from windlass.users.domain import (
    KEYS_TOPIC,
    PROJECTS_TOPIC,
    valid_secret_name,
    valid_title,
)
from windlass.users.encryption.data_keys import put_current
from windlass.users.encryption.project_keys import ProjectDataKeys
from windlass.users.encryption.secrets import SecretStore
from windlass.users.key_issuing import Issuer
from windlass.users.keys.changes import KeyChanges
from windlass.users.keys.store import KeyStore
from windlass.users.membership.store import MemberStore
from windlass.users.quotas import TenantQuotas
from windlass.users.roster import Roster
from windlass.users.scope import sees_organization
from windlass.users.store import TenantStore, unknown_project

# Of those that ended with a member, in one answer.
SHOWN_KEYS = 100


class UsersServicer(rpc.UsersServiceServicer):
    """UsersService."""

    def __init__(
        self,
        tenants: TenantStore,
        members: MemberStore,
        keys: KeyStore,
        key_changes: KeyChanges,
        secrets: SecretStore,
        project_keys: ProjectDataKeys,
        quotas: TenantQuotas,
        wake: Wake,
        *,
        key_prefix: str,
        stores: Mapping[str, str],
    ):
        """`stores` is where the installation's stores are, by the settings that say it."""
        self._tenants = tenants
        self._keys = keys
        self._stores = stores
        self._secrets = secrets
        self._project_keys = project_keys
        self._quotas = quotas
        self._wake = wake
        self._roster = Roster(tenants, members)
        self._issuer = Issuer(tenants, members, keys, key_changes, key_prefix=key_prefix)

    async def CreateOrganization(
        self, request: pb.CreateOrganizationRequest, context: Any
    ) -> pb.Organization:
        """A new tenant with a default project; the caller is its first owner."""
        title = valid_title(request.title)
        made = await self._tenants.create_organization(title, owner=current().user_id)
        # The event is of the caller's organization, which may stay longer than the title may.
        audited.change(None, replace(made, title=""), resource=made.id)
        return messages.organization(made)

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
        """Returns one organization that the caller belongs to."""
        wanted = request.organization_id
        if not current().may("platform.write") and wanted != current().organization_id:
            wanted = ""
        return messages.organization(await self._tenants.organization(wanted))

    async def CreateProject(self, request: pb.CreateProjectRequest, context: Any) -> pb.Project:
        """A new project of the caller's organization; the caller is its first owner."""
        title, principal = valid_title(request.title), current()
        require_stores(checked(request.geography), self._stores)
        project_id, also = new_id("proj_"), None
        if wanted := request.external_key_id:
            key = await self._project_keys.new(principal.organization_id, project_id, wanted)
            also = partial(put_current, new=key, of_new_project=True)
        made = await self._tenants.create_project(
            principal.organization_id,
            title,
            owner=principal.user_id,
            project_id=project_id,
            geography=request.geography,
            also=also,
        )
        made = replace(made, external_key_id=wanted)
        audited.change(None, made, resource=made.id)
        return messages.project(made)

    async def ListProjects(
        self, request: pb.ListProjectsRequest, context: Any
    ) -> pb.ListProjectsResponse:
        """All of the organization for its owners and readers, their own for project members."""
        principal = current()
        size = page_size(request.limit)
        rows = await self._tenants.projects(
            principal.organization_id,
            only="" if sees_organization(principal) else principal.require_project(),
            after=request.after,
            limit=size + 1,
            archived=request.include_archived,
        )
        page, more = cut(rows, size)
        return pb.ListProjectsResponse(
            projects=[messages.project(row) for row in page], has_more=more
        )

    async def GetProject(self, request: pb.GetProjectRequest, context: Any) -> pb.Project:
        """Returns one project that the caller may see."""
        principal = current()
        wanted = request.project_id
        if not sees_organization(principal) and wanted != principal.project_id:
            raise unknown_project(wanted)
        return messages.project(await self._tenants.project(principal.organization_id, wanted))

    async def UpdateProject(self, request: pb.UpdateProjectRequest, context: Any) -> pb.Project:
        """Changes a project of the caller's organization: its title, or what may be kept."""
        values: dict[str, Any] = {}
        if request.HasField("keeps_answers"):
            values["keeps_answers"] = request.keeps_answers
        if request.title or not values:
            values["title"] = valid_title(request.title)
        changed = await self._tenants.change_project(
            current().organization_id, request.project_id, **values
        )
        self._wake.touch(PROJECTS_TOPIC)
        return messages.project(changed)

    async def ArchiveProject(self, request: pb.ArchiveProjectRequest, context: Any) -> pb.Project:
        """Ends a project's use; its rows stay for accounting."""
        project = await self._tenants.project(current().organization_id, request.project_id)
        if project.is_default:
            raise InvalidArgument("The default project cannot be archived.", param="project_id")
        archived = await self._tenants.archive_project(current().organization_id, project.id)
        audited.change(project, archived)
        self._wake.touch(KEYS_TOPIC)
        self._wake.touch(PROJECTS_TOPIC)
        return messages.project(archived)

    async def PutMember(self, request: pb.PutMemberRequest, context: Any) -> pb.Member:
        """Adds a member or changes its role."""
        put = await self._roster.put(current(), request)
        self._wake.touch(KEYS_TOPIC)
        return messages.member(*put)

    async def ListMembers(
        self, request: pb.ListMembersRequest, context: Any
    ) -> pb.ListMembersResponse:
        """Members of the organization, or of one project."""
        size = page_size(request.limit)
        rows = await self._roster.list(current(), request, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListMembersResponse(
            members=[messages.member(*row) for row in page], has_more=more
        )

    async def RemoveMember(
        self, request: pb.RemoveMemberRequest, context: Any
    ) -> pb.RemoveMemberResponse:
        """Removes a member; its keys in that scope end, and those that rested on its rights."""
        ended = await self._roster.remove(current(), request)
        self._wake.touch(KEYS_TOPIC)
        for key in ended:
            audited.change({"id": key, "kind": "key"}, None, resource=key)
        page, more = cut(await self._keys.newest(ended, limit=SHOWN_KEYS + 1), SHOWN_KEYS)
        return pb.RemoveMemberResponse(ended_keys=map(messages.api_key, page), has_more=more)

    async def ListAffectedKeys(
        self, request: pb.ListAffectedKeysRequest, context: Any
    ) -> pb.ListAffectedKeysResponse:
        """Lists the keys that a removal or a role of a member would take rights from."""
        size = page_size(request.limit)
        rows = await self._roster.affected_keys(current(), request, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListAffectedKeysResponse(
            keys=[messages.affected_key(key, becomes) for key, becomes in page], has_more=more
        )

    async def CreateApiKey(
        self, request: pb.CreateApiKeyRequest, context: Any
    ) -> pb.CreateApiKeyResponse:
        """A new key of the caller or of a member; the secret is shown here alone."""
        key, secret = await self._issuer.create(current(), request)
        audited.change(None, key, resource=key.id)
        return pb.CreateApiKeyResponse(key=messages.api_key(key), secret=secret)

    async def ListApiKeys(
        self, request: pb.ListApiKeysRequest, context: Any
    ) -> pb.ListApiKeysResponse:
        """Owners see the keys of their scope, members their own."""
        principal = current()
        size = page_size(request.limit)
        project_id = await self._roster.scope(principal, request.project_id)
        rows = await self._issuer.list(principal, request, project_id=project_id, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListApiKeysResponse(keys=[messages.api_key(row) for row in page], has_more=more)

    async def GetApiKey(self, request: pb.GetApiKeyRequest, context: Any) -> pb.ApiKey:
        """Returns one key that the caller may see."""
        return messages.api_key(await self._issuer.get(current(), request.key_id))

    async def RevokeApiKey(self, request: pb.RevokeApiKeyRequest, context: Any) -> pb.ApiKey:
        """Ends a key within the caller's scope, and what was made with it."""
        revoked = await self._issuer.revoke(current(), request.key_id)
        self._wake.touch(KEYS_TOPIC)
        return messages.api_key(revoked)

    async def RotateApiKey(
        self, request: pb.RotateApiKeyRequest, context: Any
    ) -> pb.CreateApiKeyResponse:
        """Another secret for a key within the caller's scope; it is shown here alone."""
        key, secret = await self._issuer.rotate(current(), request.key_id, request.overlap)
        self._wake.touch(KEYS_TOPIC)
        return pb.CreateApiKeyResponse(key=messages.api_key(key), secret=secret)

    async def UpdateApiKey(self, request: pb.UpdateApiKeyRequest, context: Any) -> pb.ApiKey:
        """Changes what a key within the caller's scope is called and narrowed to."""
        key = await self._issuer.update(current(), request)
        self._wake.touch(KEYS_TOPIC)
        return messages.api_key(key)

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

    async def GetQuotas(self, request: pb.GetQuotasRequest, context: Any) -> pb.Quotas:
        """The quotas of the organization or the project."""
        return await self._quotas.get(current(), request.project_id)

    async def PutOrganizationQuota(self, request: pb.PutQuotaRequest, context: Any) -> pb.Quotas:
        """Sets what the organization may have."""
        bound = request.bound if request.HasField("bound") else None
        return await self._quotas.put(current(), "", request.name, bound)

    async def PutProjectQuota(self, request: pb.PutQuotaRequest, context: Any) -> pb.Quotas:
        """Sets what a project of the organization may have."""
        bound = request.bound if request.HasField("bound") else None
        if not request.project_id:
            raise InvalidArgument("project_id is missing.", param="project_id")
        return await self._quotas.put(current(), request.project_id, request.name, bound)

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
        size = page_size(request.limit)
        rows = await self._secrets.list(
            current().require_project(), after=request.after, limit=size + 1
        )
        page, more = cut(rows, size)
        return pb.ListSecretsResponse(secrets=map(messages.secret, page), has_more=more)

    async def DeleteSecret(
        self, request: pb.DeleteSecretRequest, context: Any
    ) -> pb.DeleteSecretResponse:
        """Removes a secret of the caller's project."""
        await self._secrets.delete(current().require_project(), valid_secret_name(request.name))
        return pb.DeleteSecretResponse()
