"""Roles and their pages in OpenAI's shapes."""

from collections.abc import Sequence
from typing import Literal

from windlass.api.users.v1 import roles_pb2 as pb
from windlass.core.errors import NotFound
from windlass.gateway.openai.rendering import Json

Order = Literal["asc", "desc"]


def render_role(role: pb.CustomRole) -> Json:
    """A role in OpenAI's shape."""
    return {
        "id": role.id,
        "object": "role",
        "name": role.name,
        "description": role.description or None,
        "permissions": list(role.permissions),
        "predefined_role": False,
        "resource_type": "api.project" if role.project_id else "api.organization",
    }


def page(shown: Sequence[Json], has_more: bool, key: str = "id") -> Json:
    """A page as OpenAI has it for roles and groups: `next` is the cursor of what follows."""
    return {
        "object": "list",
        "data": shown,
        "has_more": has_more,
        "next": shown[-1][key] if has_more else None,
    }


def unknown_role(role_id: str) -> NotFound:
    """The error of a role that is not there, or not here."""
    return NotFound(f"No role {role_id!r}.", param="role_id")
