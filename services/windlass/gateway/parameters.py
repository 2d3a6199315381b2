"""Parameters that many resources have."""

from typing import Annotated

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, SecretStr

from windlass.core.errors import InvalidArgument

_ITEMS = "Number of items on a page; 0: the resource's default."
Limit = Annotated[int, Query(ge=0, le=100, description=_ITEMS)]
ModelsLimit = Annotated[int, Query(ge=0, le=500, description=_ITEMS)]
LongLimit = Annotated[int, Query(ge=0, le=1000, description=_ITEMS)]
LongestLimit = Annotated[int, Query(ge=0, le=10_000, description=_ITEMS)]
After = Annotated[
    str, Query(max_length=512, description="Id of the last item of the previous page.")
]
INT64 = 2**63 - 1
# Of operations: parameters of the query that repeat, or have brackets in their names.
REPEATED = {
    "get_certificate": ("include",),
    "list_api_keys": ("tags",),
    "list_jobs": ("metadata", "status"),
    "list_organization_audit_logs": (
        "actor_emails", "actor_ids", "effective_at", "event_types", "project_ids", "resource_ids",
    ),
    "list_organization_users": ("emails",),
    "query_usage": ("group_by", "models", "project_ids", "api_key_ids"),
}  # fmt: skip


def encodable(value: SecretStr) -> SecretStr:
    """A secret; raises ValueError for half of a surrogate pair, which pydantic lets in here."""
    try:
        value.get_secret_value().encode()
    except UnicodeEncodeError:
        raise ValueError("it contains half of a surrogate pair") from None
    return value


class Body(BaseModel):
    """A JSON body; a field that it does not know is an error that names it."""

    # Strict: `true` is no number, and "5" is none either.
    model_config = ConfigDict(extra="forbid", strict=True)


# A coroutine, since FastAPI would run a plain function in a thread.
async def known_query(request: Request) -> None:
    """Refuses a parameter that the operation does not know; raises InvalidArgument."""
    route = request.scope["route"]
    known = {field.alias for field in route.dependant.query_params}
    known.update(REPEATED.get(route.name, ()))
    for name in request.query_params:
        if name not in known and name.partition("[")[0] not in REPEATED.get(route.name, ()):
            raise unknown_parameter(name)


def unknown_parameter(name: str) -> InvalidArgument:
    """The refusal of a parameter of the query."""
    return InvalidArgument(
        f"Unknown parameter: '{name[:64]}'.", reason="unknown_parameter", param=name[:64]
    )


def bracketed(request: Request, name: str) -> list[str]:
    """All values of a repeated parameter, with OpenAI's brackets or without."""
    return [*request.query_params.getlist(f"{name}[]"), *request.query_params.getlist(name)]


def bracketed_pairs(request: Request, name: str) -> dict[str, str]:
    """The pairs of `name[k]=v` parameters."""
    start = f"{name}["
    return {
        key[len(start) : -1]: value
        for key, value in request.query_params.multi_items()
        if key.startswith(start) and key.endswith("]")
    }
