"""Writes docs/reference/http.md from the document that /openapi.json serves."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from windlass.gateway.openapi import make_document
from windlass.gateway.rest import make_api

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "http.md"
# More fields than that are OpenAI's, and in its documentation.
MAX_FIELDS = 16
HEAD = """# HTTP API

Made by `tools/generate_http_reference.py` from `/openapi.json`; a test keeps it true. A server has
that document with every type, and draws it at `/docs`.

Send `Authorization: Bearer KEY` (or `x-api-key`); `OpenAI-Project` chooses a project where the key
is for several. Lists take `after` and `limit`, and answer `data` and `has_more`; of large items, a
page has fewer than `limit`, and `has_more` is true. A refusal has a [reason](errors.md). In a body
`*` marks what is required. What chats and completions take [without effect](parameters.md) has a
page of its own.
"""
LAST = """
## Without a key

| operation | what it does |
|---|---|
| `GET /healthz` | 200 while the process lives |
| `GET /readyz` | 200 when every part works, else 503 |
"""


def reference() -> str:
    """The whole page."""
    document = make_document(make_api(MagicMock(), MagicMock(), MagicMock()))
    groups: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            cells = f"{_takes(operation, document)} | {_does(operation)}"
            row = f"| `{method.upper()} {path}` | {cells} |"
            groups.setdefault(operation["tags"][0], []).append(row)
    head = "| operation | query, headers, body | what it does |\n|---|---|---|\n"
    return (
        HEAD
        + "".join(
            f"\n## {tag[0].upper()}{tag[1:]}\n\n{head}" + "\n".join(rows) + "\n"
            for tag, rows in groups.items()
        )
        + LAST
    )


def _does(operation: dict[str, Any]) -> str:
    return " ".join((operation.get("description") or operation["summary"]).split()).replace(
        "|", "\\|"
    )


def _takes(operation: dict[str, Any], document: dict[str, Any]) -> str:
    """The names of what a caller may send, but for what is in the path."""
    query = [one["name"] for one in operation.get("parameters", []) if one["in"] != "path"]
    content = operation.get("requestBody", {}).get("content", {})
    forms = (_fields(form["schema"], document) for form in content.values())
    # A body may be taken in several forms.
    fields = list(dict.fromkeys(name for form in forms for name in form))
    if len(fields) > MAX_FIELDS:
        fields = [name for name in fields if name.endswith("*")] + ["…"]
    parts = [", ".join(f"`{name}`" for name in names) for names in (query, fields) if names]
    return (
        "; body: ".join(parts) if query and fields else ("body: " * bool(fields)) + "".join(parts)
    )


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", [])
    names = sorted(schema.get("properties", {}), key=lambda name: name not in required)
    return [f"{name}*" if name in required else name for name in names]


if __name__ == "__main__":
    TARGET.write_text(reference())
