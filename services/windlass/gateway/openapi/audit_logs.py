"""The schema of an audit log's entry in OpenAI's shape: its details are under its type's name."""

from windlass.gateway.openai_admin.audit.event_types import TYPES
from windlass.gateway.openapi.messages import Schema, nullable, obj
from windlass.gateway.openapi.objects import ANYTHING, COUNT, TEXT, kind

_USER = obj({"id": TEXT, "email": nullable(TEXT)})
_API_KEY = obj(
    {
        "id": TEXT,
        "type": {"type": "string", "enum": ["user", "service_account"]},
        "user": _USER,
        "service_account": obj({"id": TEXT}),
    },
    optional=("user", "service_account"),
)
_ACTOR = {
    "anyOf": [
        obj({"type": kind("api_key"), "api_key": _API_KEY}),
        obj(
            {
                "type": kind("session"),
                "session": obj({"ip_address": TEXT, "user": _USER}),
            }
        ),
    ]
}


def audit_log() -> Schema:
    """An entry; of the types' names it has its own alone."""
    names = dict.fromkeys(one.name for one in TYPES)
    details: dict[str, Schema] = {
        name: {"type": "object", "additionalProperties": ANYTHING} for name in names
    }
    return obj(
        {
            "id": TEXT,
            "effective_at": COUNT,
            "type": {"type": "string", "enum": [*names]},
            "actor": _ACTOR,
            "project": obj({"id": TEXT, "name": nullable(TEXT)}),
            **details,
        },
        optional=("project", *names),
    )
