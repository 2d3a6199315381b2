"""Requests of SCIM and the answers to them, apart from HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from windlass.gateway.scim.errors import ScimError

Json = dict[str, Any]
MAX_DEPTH, MAX_BODY_BYTES = 16, 2**20
LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
# Of changes to what somebody else changes meanwhile.
TRIES = 5


@dataclass(frozen=True, slots=True)
class ScimRequest:
    """A request: `path` is below the base, without a slash at either end."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json = field(default_factory=dict)
    # Entity tags, as in the headers of these names; empty: none.
    if_match: str = ""
    if_none_match: str = ""

    def version(self) -> int | None:
        """The version that a change is for; None: any. Raises ScimError for a tag of no version.

        Of several tags, the first that is one of ours.
        """
        if not self.if_match or self.if_match.strip() == "*":
            return None
        for tag in self.if_match.split(","):
            text = tag.strip().removeprefix("W/").strip('"')
            if text.isascii() and text.isdigit() and len(text) < 19:
                return int(text)
        raise ScimError(412, "If-Match names no version of this resource.")

    def has(self, version: int) -> bool:
        """Returns True if the client has this version already."""
        tags = [tag.strip() for tag in self.if_none_match.split(",")]
        return tag_of(version) in tags or "*" in tags


@dataclass(frozen=True, slots=True)
class ScimAnswer:
    """An answer; without a body where `content` is None."""

    status: int
    content: Json | None = None
    tag: str = ""
    location: str = ""


def tag_of(version: int) -> str:
    """The weak entity tag of a version."""
    return f'W/"{version}"'


def parsed(body: bytes) -> Json:
    """A JSON object that is not too deep; raises ScimError."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ScimError(400, "The body is not JSON.", "invalidSyntax") from error
    if not isinstance(found, dict):
        raise ScimError(400, "The body is not a JSON object.", "invalidSyntax")
    _require_flat(found)
    return found


def _require_flat(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                below.extend(one.values())
            elif isinstance(one, list):
                below.extend(one)
        level = [one for one in below if isinstance(one, dict | list)]
        if not level:
            return
    raise ScimError(400, f"The body is nested more than {MAX_DEPTH} levels.", "invalidSyntax")


def listed(resources: list[Json], total: int, start: int) -> Json:
    """A page of a list."""
    return {
        "schemas": [LIST],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": len(resources),
        "Resources": resources,
    }
