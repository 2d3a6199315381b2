"""Descriptions of the service by itself (RFC 7644, 4)."""

from typing import Any

from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    Context,
    ETag,
    Filter,
    Meta,
    Patch,
    Resource,
    ResourceType,
    Schema,
    ServiceProviderConfig,
    Sort,
)

from windlass.bounds import MAX_DIRECTORY_PAGE
from windlass.gateway.scim.errors import ScimError
from windlass.gateway.scim.requests import MAX_BODY_BYTES, Json, listed
from windlass.gateway.scim.resources import ScimGroup, ScimUser

MAX_BULK_OPERATIONS = 500
ENDPOINTS = ("ServiceProviderConfig", "ResourceTypes", "Schemas")
_CONFIG = ServiceProviderConfig(
    patch=Patch(supported=True),
    bulk=Bulk(supported=True, max_operations=MAX_BULK_OPERATIONS, max_payload_size=MAX_BODY_BYTES),
    filter=Filter(supported=True, max_results=MAX_DIRECTORY_PAGE),
    change_password=ChangePassword(supported=False),
    sort=Sort(supported=True),
    etag=ETag(supported=True),
    authentication_schemes=[
        AuthenticationScheme(
            type="oauthbearertoken",
            name="API key",
            description="An API key of the organization with the permission directory.write.",
            primary=True,
        )
    ],
)
_NAMES: dict[type[Resource[Any]], str] = {ScimUser: "User", ScimGroup: "Group"}
_DESCRIBED: tuple[type[Resource[Any]], ...] = (
    ScimUser,
    ScimGroup,
    ServiceProviderConfig,
    ResourceType,
    Schema,
)


def described(parts: list[str], base: str) -> Json:
    """The document at a path below one of the endpoints; raises ScimError."""
    kind, *rest = parts
    if kind == "ServiceProviderConfig" and not rest:
        return _dumped(_CONFIG, base, kind, kind)
    documents = {
        "ResourceTypes": {
            name: _dumped(ResourceType.from_resource(model), base, f"{kind}/{name}", "ResourceType")
            for model, name in _NAMES.items()
        },
        "Schemas": {
            str(schema.id): _dumped(schema, base, f"{kind}/{schema.id}", "Schema")
            for schema in map(_schema, _DESCRIBED)
        },
    }.get(kind, {})
    if not rest:
        return listed(list(documents.values()), len(documents), 1)
    if len(rest) == 1 and rest[0] in documents:
        return documents[rest[0]]
    raise ScimError(404, f"Resource {'/'.join(rest)[:200]!r} not found.")


def _schema(model: type[Resource[Any]]) -> Schema:
    schema = model.to_schema()
    if model in _NAMES:
        schema.name = schema.description = _NAMES[model]
    return schema


def _dumped(document: Resource[Any], base: str, path: str, kind: str) -> Json:
    document.meta = Meta(resource_type=kind, location=f"{base}/{path}")
    return document.model_dump(scim_ctx=Context.RESOURCE_QUERY_RESPONSE)
