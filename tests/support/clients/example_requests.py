"""The least request that each operation of an OpenAPI document takes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
# In place of what nobody has.
UNKNOWN = "none"


@dataclass(frozen=True)
class Operation:
    """One method of one path, with a request that its schema takes."""

    method: str
    path: str
    query: Json
    body: Any
    is_form: bool
    # No key is asked for.
    is_open: bool

    @property
    def name(self) -> str:
        """`GET /v1/files/{file_id}`."""
        return f"{self.method} {self.path}"

    def target(self, known: Mapping[str, str] | None = None) -> tuple[str, str]:
        """The method and the path; what `known` leaves out of the path is unknown."""
        names = (one[1:-1] for one in self.path.split("/") if one.startswith("{"))
        return self.method, self.path.format_map(dict.fromkeys(names, UNKNOWN) | dict(known or {}))

    def options(self) -> Json:
        """The rest of its request, as httpx takes it."""
        if not self.is_form:
            return {"params": self.query, "json": self.body}
        return {"data": self.body, "files": {"file": ("x.jsonl", b"{}")}}


def operations(document: Json, bodies: Mapping[str, Json] | None = None) -> Iterator[Operation]:
    """Yields the operations of a document; `bodies` are those that no schema tells, by names."""
    known = bodies or {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            content = operation.get("requestBody", {}).get("content", {})
            form = next(iter(content), "")
            yield Operation(
                method.upper(),
                path,
                {
                    one["name"]: least(one["schema"], document)
                    for one in operation.get("parameters", ())
                    if one["in"] == "query" and one["required"]
                },
                known.get(f"{method.upper()} {path}")
                or (least(content[form]["schema"], document) if form else None),
                is_form=form.startswith("multipart/"),
                is_open=operation.get("security") == [],
            )


def least(schema: Json, document: Json) -> Any:
    """The least value that a schema takes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return least(document["components"]["schemas"][name], document)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return least(schema[several][0], document)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        known = schema.get("properties", {})
        found = {name: least(known[name], document) for name in schema.get("required", ())}
        free = [UNKNOWN] * (schema.get("minProperties", 0) - len(found))
        return found | {name: least(schema["additionalProperties"], document) for name in free}
    if kind == "array":
        return [least(schema["items"], document)] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return int(schema.get("minimum", 0))
    if kind == "boolean":
        return False
    return "x" * max(1, schema.get("minLength", 0))
