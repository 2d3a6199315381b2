"""/v1/organization/projects/{project_id}/api_keys."""

from collections.abc import Sequence
from typing import Literal

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import NotFound
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin import members
from windlass.gateway.openai_admin.keys import Lifetime, Scopes, is_live, render_project_key
from windlass.gateway.openai_admin.scopes import permissions
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import enum_name
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import INTO_PROJECTS, permissions_of

Access = Literal["active", "inactive", "any"]


class ProjectKeySettings(Body):
    """Settings of a key; those left out stay."""

    expires_in_seconds: Lifetime | None = None
    scopes: Scopes | None = None


def role_of(key: pb.ApiKey) -> str:
    """The name of a key's role."""
    return enum_name(pb.Role.DESCRIPTOR, key.role)


class ProjectKeys:
    """Live keys of projects, with what is known of their owners."""

    def __init__(self, users: rpc.UsersServiceAsyncStub):
        self._users = users

    async def find(self, project_id: str, key_id: str) -> pb.ApiKey:
        """Returns a key of a project; raises NotFound."""
        key = await self._users.GetApiKey(pb.GetApiKeyRequest(key_id=key_id))
        if key.project_id != project_id or not is_live(key):
            raise NotFound(f"No API key {key_id!r}.", param="key_id")
        return key

    async def render(self, project_id: str, keys: Sequence[pb.ApiKey]) -> list[Json]:
        """Keys in OpenAI's shape, each with its owner and whether they have access."""
        owners = {key.user_id for key in keys}
        here = await members.find(self._users, project_id, owners)
        absent = owners - here.keys()
        above = await members.find(self._users, "", absent) if absent else {}
        return [
            render_project_key(
                key,
                here.get(key.user_id) or above.get(key.user_id),
                has_access=key.user_id in here or _reaches(above.get(key.user_id)),
            )
            for key in keys
        ]


def _reaches(member: pb.Member | None) -> bool:
    """True for a member of the organization whose role reaches into its projects."""
    return member is not None and enum_name(pb.Role.DESCRIPTOR, member.role) in INTO_PROJECTS


def project_keys_router(app: App) -> ResourceRouter:
    """Keys of a project."""
    router = ResourceRouter(
        prefix="/organization/projects/{project_id}/api_keys", tags=["administration"]
    )
    users = app.clients.stub(rpc.UsersServiceStub)
    live = ProjectKeys(users)

    @router.get("")
    async def list_project_api_keys(
        project_id: str,
        after: After = "",
        limit: Limit = 0,
        owner_project_access: Access = "any",
    ) -> Json:
        """Live keys of a project, newest first."""
        request = pb.ListApiKeysRequest(project_id=project_id, after=after, limit=limit, live=True)
        if owner_project_access != "any":
            request.owner_has_access = owner_project_access == "active"
        answer = await users.ListApiKeys(request)
        return page(await live.render(project_id, answer.keys), answer.has_more)

    @router.get("/{key_id}")
    async def get_project_api_key(project_id: str, key_id: str) -> Json:
        """Returns one live key of a project."""
        return (await live.render(project_id, [await live.find(project_id, key_id)]))[0]

    @router.post("/{key_id}")
    async def update_project_api_key(
        project_id: str, key_id: str, body: ProjectKeySettings
    ) -> Json:
        """Changes the scopes or the end of a key; no scopes are all of its role."""
        key = await live.find(project_id, key_id)
        request = pb.UpdateApiKeyRequest(key_id=key_id, expires_in=body.expires_in_seconds)
        if body.scopes is not None:
            names = permissions(body.scopes, permissions_of((role_of(key),)))
            request.scopes.CopyFrom(pb.KeyScopes(names=names))
        return (await live.render(project_id, [await users.UpdateApiKey(request)]))[0]

    @router.delete("/{key_id}")
    async def delete_project_api_key(project_id: str, key_id: str) -> Json:
        """Revokes a key and what was made with it; effective everywhere within a second."""
        await live.find(project_id, key_id)
        await users.RevokeApiKey(pb.RevokeApiKeyRequest(key_id=key_id))
        return {"id": key_id, "object": "organization.project.api_key.deleted", "deleted": True}

    return router
