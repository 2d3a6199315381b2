"""Responses on roles for a time, and of previews of changes of roles."""

from windlass.api.users.v1 import elevations_pb2, roles_pb2
from windlass.gateway.openapi.messages import Schema, message, nullable, obj
from windlass.gateway.openapi.objects import COUNT, FLAG, TEXT, kind, listed, page, ref

_RULES: dict[str, Schema] = {
    "id": TEXT,
    "askers": {"type": "string", "enum": ["none", "project", "organization"]},
    "longest_seconds": nullable(COUNT),
    "approvals": nullable(COUNT),
}

ELEVATIONS: dict[str, Schema] = {
    "Elevation": message(elevations_pb2.Elevation.DESCRIPTOR, "elevation"),
    "ElevationRole": obj(
        {
            "object": kind("elevation_role"),
            **_RULES,
            "name": TEXT,
            "description": nullable(TEXT),
            "permissions": listed(TEXT),
        }
    ),
    "RoleElevation": obj({"object": kind("role.elevation"), **_RULES}),
    "RolePreview": obj(
        {
            "object": kind("role.preview"),
            "data": listed(message(roles_pb2.RoleEffect.DESCRIPTOR)),
            "has_more": FLAG,
            "last_id": nullable(TEXT),
            "keys": listed(message(roles_pb2.KeyEffect.DESCRIPTOR)),
            "has_more_keys": FLAG,
        }
    ),
}


def _responses() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for scope in ("organization", "project"):
        found |= {
            f"preview_{scope}_role": ref("RolePreview"),
            f"get_{scope}_role_elevation": ref("RoleElevation"),
            f"put_{scope}_role_elevation": ref("RoleElevation"),
            f"list_{scope}_elevation_roles": page("ElevationRole"),
            f"list_{scope}_elevations": page("Elevation"),
        }
        verbs = ("request", "get", "approve", "deny", "withdraw", "end")
        found |= {f"{verb}_{scope}_elevation": ref("Elevation") for verb in verbs}
    return found


ELEVATION_RESPONSES = _responses()
