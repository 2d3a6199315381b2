"""The OpenAPI document of every path, those outside of FastAPI too."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from windlass.bounds import MAX_FILE_SECONDS, MIN_FILE_SECONDS
from windlass.gateway.openapi import inference, jobs, workload_identity
from windlass.gateway.openapi.messages import Schema
from windlass.gateway.openapi.objects import PROVENANCE, TEXT, ref
from windlass.gateway.openapi.operations import COMPONENTS, RESPONSES
from windlass.gateway.parameters import REPEATED
from windlass.gateway.resource_router import built

_BINARY: Schema = {"type": "string", "format": "binary"}
# Answers that are no JSON, or not only.
_CONTENT: dict[str, dict[str, Any]] = {
    "export_content": {"application/octet-stream": {"schema": _BINARY}},
    "file_content": {"application/octet-stream": {"schema": _BINARY}},
    "read_log": {"text/plain; charset=utf-8": {"schema": TEXT}},
    "follow_engine_training": {"text/event-stream; charset=utf-8": {"schema": TEXT}},
    "list_events": {"text/event-stream; charset=utf-8": {"schema": TEXT}},
}
_REPEATED = {
    "in": "query",
    "required": False,
    "schema": {"type": "array", "items": {"type": "string"}},
}
_PAIRS = {
    "style": "deepObject",
    "explode": True,
    "schema": {"type": "object", "additionalProperties": {"type": "string"}},
}
# Parameters that are pairs, as `name[key]=value`.
_BRACKETED = ("effective_at", "metadata")
_UPLOAD: Schema = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "purpose": {"type": "string"},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {
            "type": "integer",
            "minimum": MIN_FILE_SECONDS,
            "maximum": MAX_FILE_SECONDS,
        },
        **{
            f"windlass[provenance][{name}]": schema
            for name, schema in PROVENANCE["properties"].items()
        },
        "file": _BINARY,
    },
    "additionalProperties": False,
}


def make_document(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    document = get_openapi(
        title=api.title,
        version=api.version,
        description=api.description,
        routes=list(built(api.routes)),
    )
    for item in document["paths"].values():
        for operation in item.values():
            _describe(operation)
    document["paths"] |= inference.paths() | workload_identity.paths()
    document["paths"].setdefault("/v1/files", {})["post"] = _upload()
    document["paths"]["/v1/fine_tuning/jobs"]["post"] = jobs.operation()
    for item in document["paths"].values():
        for operation in item.values():
            operation["responses"]["default"] = {"$ref": "#/components/responses/Error"}
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    # Our validation answers 400 in OpenAI's shape, not FastAPI's 422.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= COMPONENTS | inference.components() | jobs.components()
    components["responses"] = {
        "Error": {
            "description": "OpenAI's error object.",
            "content": {"application/json": {"schema": ref("Error")}},
        }
    }
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    return document


def _describe(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    for repeated in REPEATED.get(name, ()):
        form = _REPEATED | (_PAIRS if repeated in _BRACKETED else {})
        operation.setdefault("parameters", []).append(form | {"name": repeated})
    # JSON first: of several forms, generated clients take the first one that they know.
    content: dict[str, Any] = {}
    if name in RESPONSES:
        content["application/json"] = {"schema": RESPONSES[name]}
    content |= _CONTENT.get(name, {})
    operation["responses"] = {"200": {"description": "Done.", "content": content}}
    if name == "list_events":
        operation["responses"]["204"] = {"description": "Everything was received."}
    if name == "file_content":
        operation["responses"]["206"] = {"description": "A part.", "content": content}


def _upload() -> dict[str, Any]:
    return {
        "tags": ["files"],
        "operationId": "create_file",
        "summary": "Uploads a file.",
        "requestBody": {
            "required": True,
            "content": {"multipart/form-data": {"schema": _UPLOAD}},
        },
        "responses": {
            "200": {
                "description": "Done.",
                "content": {"application/json": {"schema": ref("File")}},
            }
        },
    }
