"""/v1/api_keys."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import MAX_KEY_SECONDS, TITLE_LENGTH, USER_ID_LENGTH
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.admin.members import render_key, role_number
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit


class CreateApiKey(Body):
    """A new key; without a project, one of the caller's own scope."""

    name: Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]
    project_id: str = ""
    role: Annotated[str | None, Field(description="Default: project_member.")] = None
    expires_in: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_KEY_SECONDS,
            description="Lifetime in seconds; 0: expires with the key that creates it, if "
            "that expires.",
        ),
    ] = 0
    user_id: Annotated[
        str,
        Field(max_length=USER_ID_LENGTH, description="Member who owns the key; empty: the caller."),
    ] = ""


def api_keys_router(app: App) -> APIRouter:
    """API keys."""
    router = APIRouter(prefix="/api_keys", tags=["API keys"])
    users = app.clients.stub(rpc.UsersServiceStub)

    @router.post("")
    async def create_api_key(body: CreateApiKey) -> Json:
        """A new key; its `value` is in this answer and nowhere else."""
        answer = await users.CreateApiKey(
            pb.CreateApiKeyRequest(
                name=body.name,
                project_id=body.project_id,
                role=role_number(body.role) if body.role is not None else pb.ROLE_UNSPECIFIED,
                expires_in=body.expires_in,
                user_id=body.user_id,
            )
        )
        return {**render_key(answer.key), "value": answer.secret}

    @router.get("")
    async def list_api_keys(
        project_id: Annotated[str, Query(max_length=IDENTIFIER_LENGTH)] = "",
        after: After = "",
        limit: Limit = 0,
    ) -> Json:
        """Keys of the caller's scope, redacted."""
        answer = await users.ListApiKeys(
            pb.ListApiKeysRequest(project_id=project_id, after=after, limit=limit)
        )
        return page([render_key(key) for key in answer.keys], answer.has_more)

    @router.delete("/{key_id}")
    async def revoke_api_key(key_id: str) -> Json:
        """Revokes a key and what was made with it; effective everywhere within a second."""
        key = await users.RevokeApiKey(pb.RevokeApiKeyRequest(key_id=key_id))
        return {**render_key(key), "deleted": True}

    return router
