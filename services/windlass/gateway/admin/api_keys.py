"""/v1/api_keys and /v1/organization/key_policy."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import (
    MAX_KEY_MODELS,
    MAX_KEY_NETWORKS,
    MAX_KEY_SCOPES,
    MAX_KEY_SECONDS,
    MAX_KEY_TAGS,
    MAX_OVERLAP_SECONDS,
    MAX_UNUSED_DAYS,
    MIN_LONGEST_LIFE,
    MODEL_PATTERN_LENGTH,
    NETWORK_LENGTH,
    TAG_LENGTH,
    TAG_NAME_LENGTH,
    TITLE_LENGTH,
    USER_ID_LENGTH,
)
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.admin.members import render_key, role_number
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit, bracketed_pairs
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import PERMISSIONS

Scopes = Annotated[
    list[Annotated[str, Field(json_schema_extra={"enum": sorted(PERMISSIONS)})]],
    Field(max_length=MAX_KEY_SCOPES),
]
Networks = Annotated[
    list[Annotated[str, Field(max_length=NETWORK_LENGTH)]], Field(max_length=MAX_KEY_NETWORKS)
]
Models = Annotated[
    list[Annotated[str, Field(max_length=MODEL_PATTERN_LENGTH)]], Field(max_length=MAX_KEY_MODELS)
]
Tags = Annotated[
    dict[
        Annotated[str, Field(max_length=TAG_NAME_LENGTH)],
        Annotated[str, Field(max_length=TAG_LENGTH)],
    ],
    Field(max_length=MAX_KEY_TAGS),
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
    models: Annotated[
        Models,
        Field(
            description="Models that the key is for, by names and by beginnings of names such as "
            "ft:llama-3:*; none: as the key that creates it."
        ),
    ] = []
    tags: Annotated[Tags, Field(description="Notes by which keys are found.")] = {}


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
    models: Annotated[Models | None, Field(description="Models that it is for; none: any.")] = None
    tags: Annotated[Tags | None, Field(description="In place of all that it has.")] = None
    expires_in: Annotated[
        int | None,
        Field(ge=0, le=MAX_KEY_SECONDS, description="Lifetime from now in seconds; 0: no end."),
    ] = None


class PutKeyPolicy(Body):
    """An organization's policy for its keys, as a whole."""

    longest_life: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_KEY_SECONDS,
            description="Seconds within which a key must end that is made or rotated, or gets "
            f"another end; {MIN_LONGEST_LIFE} at least; 0: it need not end.",
        ),
    ] = 0
    service_accounts_only: Annotated[
        bool, Field(description="Whether only service accounts get keys.")
    ] = False
    unused_days: Annotated[
        int,
        Field(ge=0, le=MAX_UNUSED_DAYS, description="Days after which unused keys end; 0: never."),
    ] = 0


def key_policies_router(app: App) -> ResourceRouter:
    """Policies for API keys."""
    router = ResourceRouter(prefix="/organization/key_policy", tags=["API keys"])
    policies = app.clients.stub(rpc.KeyPoliciesServiceStub)

    @router.get("")
    async def get_key_policy() -> Json:
        """Returns what the organization asks of its keys."""
        return plain(await policies.GetKeyPolicy(pb.GetKeyPolicyRequest()), "key_policy")

    @router.put("")
    async def put_key_policy(
        body: PutKeyPolicy,
        dry_run: Annotated[bool, Query(description="Set nothing; only list the keys.")] = False,
    ) -> Json:
        """Sets the policy (organization owners); lists unused keys that end by it."""
        answer = await policies.PutKeyPolicy(
            pb.PutKeyPolicyRequest(**body.model_dump(), dry_run=dry_run)
        )
        return {
            **plain(answer.policy, "key_policy"),
            "ended_keys": [render_key(key) for key in answer.ended_keys],
            "has_more": answer.has_more,
        }

    return router


def api_keys_router(app: App) -> ResourceRouter:
    """API keys."""
    router = ResourceRouter(prefix="/api_keys", tags=["API keys"])
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
                models=body.models,
                tags=body.tags,
            )
        )
        return {**render_key(answer.key), "value": answer.secret}

    @router.get("")
    async def list_api_keys(
        request: Request,
        project_id: Annotated[str, Query(max_length=IDENTIFIER_LENGTH)] = "",
        after: After = "",
        limit: Limit = 0,
    ) -> Json:
        """Keys of the caller's scope, redacted; `tags[k]=v` filters."""
        wanted = pb.ListApiKeysRequest(
            project_id=project_id, after=after, limit=limit, tags=bracketed_pairs(request, "tags")
        )
        answer = await users.ListApiKeys(wanted)
        return page([render_key(key) for key in answer.keys], answer.has_more)

    @router.patch("/{key_id}")
    async def update_api_key(key_id: str, body: UpdateApiKey) -> Json:
        """Changes a key, and narrows what was made with it; effective within a second."""
        request = pb.UpdateApiKeyRequest(key_id=key_id, name=body.name, expires_in=body.expires_in)
        if body.scopes is not None:
            request.scopes.CopyFrom(pb.KeyScopes(names=body.scopes))
        if body.networks is not None:
            request.networks.CopyFrom(pb.KeyNetworks(names=body.networks))
        if body.models is not None:
            request.models.CopyFrom(pb.KeyModels(names=body.models))
        if body.tags is not None:
            request.tags.CopyFrom(pb.KeyTags(values=body.tags))
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
