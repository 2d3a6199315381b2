"""API keys in OpenAI's shapes."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import users_pb2 as pb
from windlass.bounds import MAX_KEY_SCOPES, MAX_KEY_SECONDS
from windlass.core.clock import now_seconds
from windlass.gateway.openai.rendering import Json
from windlass.gateway.openai_admin import members
from windlass.gateway.openai_admin.scopes import NAMES
from windlass.policy import PERMISSIONS

Lifetime = Annotated[int, Field(ge=1, le=MAX_KEY_SECONDS, description="Seconds from now.")]
Scopes = Annotated[
    list[Annotated[str, Field(json_schema_extra={"enum": sorted({*NAMES, *PERMISSIONS})})]],
    Field(max_length=MAX_KEY_SCOPES, description="OpenAI's names of scopes, or permissions."),
]


def is_live(key: pb.ApiKey) -> bool:
    """Returns True for a key that is neither revoked nor expired, as lists have them."""
    return not key.revoked_at and not 0 < key.expires_at <= now_seconds()


def render_project_key(key: pb.ApiKey, owner: pb.Member | None, *, has_access: bool) -> Json:
    """A key of a project."""
    return {
        "id": key.id,
        "object": "organization.project.api_key",
        "name": key.name,
        "redacted_value": key.redacted,
        "created_at": key.created_at,
        "last_used_at": key.last_used_at or None,
        "expires_at": key.expires_at or None,
        "owner": _owner(key, owner),
        "owner_project_access": "active" if has_access else "inactive",
    }


def render_admin_key(key: pb.ApiKey, owner: pb.Member | None) -> Json:
    """A key of the organization."""
    return {
        "id": key.id,
        "object": "organization.admin_api_key",
        "name": key.name,
        "redacted_value": key.redacted,
        "created_at": key.created_at,
        "last_used_at": key.last_used_at or None,
        "expires_at": key.expires_at or None,
        "owner": {
            "type": "user",
            "object": "organization.user",
            "id": key.user_id,
            "name": members.title(owner, key.user_id),
            "role": members.role_of(owner) if owner else "reader",
            "created_at": owner.created_at if owner else key.created_at,
        },
    }


def render_account_key(key: pb.ApiKey, secret: str) -> Json:
    """A new key of a service account, with its secret."""
    return {
        "id": key.id,
        "object": "organization.project.service_account.api_key",
        "name": key.name,
        "value": secret,
        "created_at": key.created_at,
        "expires_at": key.expires_at or None,
    }


def _owner(key: pb.ApiKey, owner: pb.Member | None) -> Json:
    fields = {
        "id": key.user_id,
        "name": members.title(owner, key.user_id),
        "role": members.role_of(owner) if owner else "none",
        "created_at": owner.created_at if owner else key.created_at,
    }
    if owner is not None and owner.kind == pb.MEMBER_KIND_SERVICE_ACCOUNT:
        return {"type": "service_account", "service_account": fields}
    return {"type": "user", "user": {**fields, "email": members.email(owner, key.user_id)}}
