"""`response_format`: what a client may ask an answer to be."""

from typing import Annotated, Any

from msgspec import Meta, Struct

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class TextFormat(Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Text of any form."""


class JsonObjectFormat(Struct, tag_field="type", tag="json_object", forbid_unknown_fields=True):
    """Any JSON object."""


class JsonSchema(Struct, kw_only=True, forbid_unknown_fields=True):
    """A named schema; an answer is held to it with `strict` and without."""

    name: Name
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(
    Struct, kw_only=True, tag_field="type", tag="json_schema", forbid_unknown_fields=True
):
    """JSON that a schema describes."""

    json_schema: JsonSchema


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat
