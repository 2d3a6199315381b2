"""/openapi.json, /docs, which draws it without the internet, and /, which leads on from there."""

from importlib.resources import files
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse

from windlass.core.operations import Operations
from windlass.gateway.openapi import make_document

_CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'"
)


def router(api: FastAPI, operations: Operations) -> APIRouter:
    """The pages: `/` for everybody, the others with a key or on the operators' listener."""
    pages = APIRouter(include_in_schema=False)
    welcome = files("windlass.gateway").joinpath("index.html").read_text()
    html = files("windlass.gateway").joinpath("docs.html").read_text()
    html_headers = {"content-security-policy": _CONTENT_POLICY}

    @pages.get("/")
    async def index() -> HTMLResponse:
        return HTMLResponse(welcome, headers=html_headers)

    @pages.get("/openapi.json")
    async def schema() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = make_document(api)
        return api.openapi_schema

    @pages.get("/docs")
    async def docs() -> HTMLResponse:
        return HTMLResponse(html, headers=html_headers)

    def document() -> tuple[bytes, dict[str, str]]:
        body = orjson.dumps(api.openapi_schema or make_document(api))
        return body, {"Content-Type": "application/json"}

    operations.add("/openapi.json", document)
    kind = {"Content-Type": "text/html; charset=utf-8"}
    operations.add("/docs", lambda: (html.encode(), html_headers | kind))
    return pages
