"""/v1/organization/admin_api_keys: keys of the organization itself."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import TITLE_LENGTH
from windlass.core.app import App
from windlass.core.errors import NotFound
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin import members
from windlass.gateway.openai_admin.keys import Lifetime, is_live, render_admin_key
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter


class NewAdminKey(Body):
    """A key of the organization, with its owner's role."""

    name: Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]
    expires_in_seconds: Lifetime | None = None


def admin_keys_router(app: App) -> ResourceRouter:
    """Keys of the organization."""
    router = ResourceRouter(prefix="/organization/admin_api_keys", tags=["administration"])
    users = app.clients.stub(rpc.UsersServiceStub)

    async def render(keys: Sequence[pb.ApiKey]) -> list[Json]:
        owners = await members.find(users, "", {key.user_id for key in keys})
        return [render_admin_key(key, owners.get(key.user_id)) for key in keys]

    async def find(key_id: str) -> pb.ApiKey:
        key = await users.GetApiKey(pb.GetApiKeyRequest(key_id=key_id))
        if key.project_id or not is_live(key):
            raise NotFound(f"No admin API key {key_id!r}.", param="key_id")
        return key

    @router.post("")
    async def create_admin_api_key(body: NewAdminKey) -> Json:
        """A new key; its `value` is in this answer and nowhere else."""
        answer = await users.CreateApiKey(
            pb.CreateApiKeyRequest(
                name=body.name,
                role=members.role_number("owner", of_project=False),
                expires_in=body.expires_in_seconds or 0,
            )
        )
        return {**(await render([answer.key]))[0], "value": answer.secret}

    @router.get("")
    async def list_admin_api_keys(
        after: After = "", limit: Limit = 0, order: Literal["asc", "desc"] = "asc"
    ) -> Json:
        """Live keys of the organization, by their creation."""
        answer = await users.ListApiKeys(
            pb.ListApiKeysRequest(
                after=after,
                limit=limit,
                of_organization=True,
                live=True,
                oldest_first=order == "asc",
            )
        )
        return page(await render(answer.keys), answer.has_more)

    @router.get("/{key_id}")
    async def get_admin_api_key(key_id: str) -> Json:
        """Returns one live key of the organization."""
        return (await render([await find(key_id)]))[0]

    @router.delete("/{key_id}")
    async def delete_admin_api_key(key_id: str) -> Json:
        """Revokes a key and what was made with it; effective everywhere within a second."""
        await find(key_id)
        await users.RevokeApiKey(pb.RevokeApiKeyRequest(key_id=key_id))
        return {"id": key_id, "object": "organization.admin_api_key.deleted", "deleted": True}

    return router
