"""/v1/api_keys."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import (
    MAX_KEY_NETWORKS,
    MAX_KEY_SCOPES,
    MAX_KEY_SECONDS,
    MAX_OVERLAP_SECONDS,
    NETWORK_LENGTH,
    TITLE_LENGTH,
    USER_ID_LENGTH,
)
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.admin.members import render_key, role_number
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.policy import PERMISSIONS

Scopes = Annotated[
    list[Annotated[str, Field(json_schema_extra={"enum": sorted(PERMISSIONS)})]],
    Field(max_length=MAX_KEY_SCOPES),
]
Networks = Annotated[
    list[Annotated[str, Field(max_length=NETWORK_LENGTH)]], Field(max_length=MAX_KEY_NETWORKS)
]


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
    scopes: Annotated[
        Scopes,
        Field(description="Permissions of the role; none: as the key that creates it has."),
    ] = []
    networks: Annotated[
        Networks,
        Field(
            description="Networks that the key is taken from, such as 10.0.0.0/8; none: as the "
            "key that creates it."
        ),
    ] = []


class RotateApiKey(Body):
    """Another secret for a key."""

    overlap: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_OVERLAP_SECONDS,
            description="Seconds for which the present secret answers too.",
        ),
    ] = 0


class UpdateApiKey(Body):
    """Settings of a key; those left out stay."""

    name: Annotated[str | None, Field(min_length=1, max_length=TITLE_LENGTH)] = None
    scopes: Annotated[
        Scopes | None, Field(description="Permissions that it is narrowed to; none: all.")
    ] = None
    networks: Annotated[
        Networks | None, Field(description="Networks that it is taken from; none: any.")
    ] = None
    expires_in: Annotated[
        int | None,
        Field(ge=0, le=MAX_KEY_SECONDS, description="Lifetime from now in seconds; 0: no end."),
    ] = None


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
                scopes=body.scopes,
                networks=body.networks,
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

    @router.patch("/{key_id}")
    async def update_api_key(key_id: str, body: UpdateApiKey) -> Json:
        """Changes a key, and narrows what was made with it; effective within a second."""
        request = pb.UpdateApiKeyRequest(key_id=key_id, name=body.name, expires_in=body.expires_in)
        if body.scopes is not None:
            request.scopes.CopyFrom(pb.KeyScopes(names=body.scopes))
        if body.networks is not None:
            request.networks.CopyFrom(pb.KeyNetworks(names=body.networks))
        return render_key(await users.UpdateApiKey(request))

    @router.post("/{key_id}/rotate")
    async def rotate_api_key(key_id: str, body: RotateApiKey) -> Json:
        """Another secret for a key, whose `value` is in this answer and nowhere else."""
        answer = await users.RotateApiKey(
            pb.RotateApiKeyRequest(key_id=key_id, overlap=body.overlap)
        )
        return {**render_key(answer.key), "value": answer.secret}

    @router.delete("/{key_id}")
    async def revoke_api_key(key_id: str) -> Json:
        """Revokes a key and what was made with it; effective everywhere within a second."""
        key = await users.RevokeApiKey(pb.RevokeApiKeyRequest(key_id=key_id))
        return {**render_key(key), "deleted": True}

    return router
