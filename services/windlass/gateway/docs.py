"""/openapi.json, and /docs: one page of our own that draws it, for machines without internet."""

from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse

# Answered outside of FastAPI, where it is fast; what a body may hold is OpenAI's own reference.
_RAW = {
    "/v1/chat/completions": ("chat", "Answers a chat; with `stream` as server-sent events."),
    "/v1/completions": ("chat", "Completes a prompt; with `stream` as server-sent events."),
    "/v1/embeddings": ("chat", "Embeds text."),
    "/v1/score": ("chat", "Scores texts and conversations by a reward model."),
}
_CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'"
)


def router(api: FastAPI) -> APIRouter:
    """The two pages."""
    pages = APIRouter(include_in_schema=False)
    html = files("windlass.gateway").joinpath("docs.html").read_text()

    @pages.get("/openapi.json")
    async def schema() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = make_schema(api)
        return api.openapi_schema

    @pages.get("/docs")
    async def docs() -> HTMLResponse:
        return HTMLResponse(html, headers={"content-security-policy": _CONTENT_POLICY})

    return pages


def make_schema(api: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of every path, those outside of FastAPI too."""
    document = get_openapi(
        title=api.title, version=api.version, description=api.description, routes=api.routes
    )
    # Our validation answers 400 in OpenAI's shape, not FastAPI's 422.
    for item in document["paths"].values():
        for operation in item.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"$ref": "#/components/responses/Error"}
    for path, (tag, text) in _RAW.items():
        document["paths"][path] = {"post": _raw(tag, text, "application/json", _INFERENCE)}
    upload = _raw("files", "Uploads a file.", "multipart/form-data", _UPLOAD)
    document["paths"].setdefault("/v1/files", {})["post"] = upload
    components = document.setdefault("components", {})
    for name in ("HTTPValidationError", "ValidationError"):
        components.get("schemas", {}).pop(name, None)
    components["responses"] = {"Error": _ERROR}
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    return document


def _raw(tag: str, text: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "tags": [tag],
        "summary": text,
        "requestBody": {"required": True, "content": {media: {"schema": schema}}},
        "responses": {
            "200": {"description": "Done."},
            "default": {"$ref": "#/components/responses/Error"},
        },
    }


_INFERENCE: dict[str, Any] = {
    "type": "object",
    "required": ["model"],
    "properties": {"model": {"type": "string"}, "stream": {"type": "boolean"}},
    "additionalProperties": True,
}
_UPLOAD: dict[str, Any] = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string"},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer"},
    },
}
_NULLABLE = {"type": ["string", "null"]}
_ERROR: dict[str, Any] = {
    "description": "OpenAI's error object.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["message", "type", "param", "code"],
                        "properties": {
                            "message": {"type": "string"},
                            "type": {"type": "string"},
                            "param": _NULLABLE,
                            "code": _NULLABLE,
                        },
                    }
                },
            }
        }
    },
}
