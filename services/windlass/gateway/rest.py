"""Everything that is not on a hot path: FastAPI over the services' RPCs."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from windlass.core.addresses import ClientAddresses
from windlass.core.app import App
from windlass.core.errors import AppError, PermissionDenied
from windlass.core.objects import ObjectStoreError
from windlass.core.operations import NOT_READY, status_of
from windlass.core.operations.exposition import CONTENT_TYPE
from windlass.core.rpc.auth import client_address
from windlass.gateway import admin, docs, openai, openai_admin, sign_in
from windlass.gateway.asgi import Message, Receive, Scope, Send, read_body
from windlass.gateway.errors import (
    HttpError,
    method_not_allowed,
    not_found,
    to_http,
)
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.internal.chat import InternalChat
from windlass.gateway.inference.scripts import PythonGraders
from windlass.gateway.openai import creation
from windlass.gateway.openai.graders import graders_router
from windlass.gateway.resource_router import JsonResponse
from windlass.gateway.scim.directory import directory_router
from windlass.gateway.sign_in.routes import Guesses
from windlass.gateway.validation import validation_error

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# What the front door answers before FastAPI is asked.
RAW_METHODS = {"/v1/files": ("POST",), creation.PATH: ("POST",)}
# Of the forms of a sign-in.
ANONYMOUS_BODY_BYTES = 64 * 1024
Application = Callable[[Scope, Receive, Send], Any]


def make_rest(app: App, chat: InternalChat, scripts: PythonGraders) -> Application:
    """The ASGI application of the control plane's resources."""
    api = make_api(app, chat, scripts)
    for kind in (grpc.aio.AioRpcError, AppError, ObjectStoreError, HttpError):
        api.add_exception_handler(kind, _on_error)
    api.add_exception_handler(PermissionDenied, _refusing(app))
    api.add_exception_handler(RequestValidationError, _on_validation)
    api.add_exception_handler(HTTPException, _on_http)
    api.add_exception_handler(Exception, _on_error)
    return _bounded(api, app.settings.http.max_body_bytes)


def make_api(app: App, chat: InternalChat, scripts: PythonGraders) -> FastAPI:
    """Return every route that FastAPI answers, without the handling of errors."""
    api = FastAPI(
        title="Windlass",
        version="1",
        description="OpenAI's API and Windlass' additions to it.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        default_response_class=JsonResponse,
        generate_unique_id_function=lambda route: route.name,
    )
    routers = (
        *openai.ROUTERS,
        *openai_admin.ROUTERS,
        *admin.ROUTERS,
        *sign_in.ADMIN_ROUTERS,
        directory_router,
    )
    for make in routers:
        api.router.routes.extend(make(app).routes)
    api.router.routes.extend(graders_router(chat, scripts).routes)
    guesses = Guesses(ClientAddresses(app.settings.http.trusted_proxies))
    for make_router in sign_in.ROUTERS:
        api.include_router(make_router(app, guesses))
    api.include_router(_operations(app))
    api.include_router(docs.router(api, app.operations))
    return api


def _operations(app: App) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/healthz")
    async def alive() -> dict[str, str]:
        return {"status": "ok"}

    @router.get("/readyz")
    async def ready() -> JsonResponse:
        # Why it is not is for operators, on their own listener.
        status = status_of(await app.readiness())
        return JsonResponse({"status": status}, status_code=503 if status == NOT_READY else 200)

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        if not request.state.exchange.caller.may("platform.read"):
            raise PermissionDenied("This needs the permission platform.read.")
        return Response(await app.exposition.render(), media_type=CONTENT_TYPE)

    return router


def _respond(error: HttpError) -> Response:
    return Response(
        error.body(), error.status, headers=error.headers, media_type="application/json"
    )


def _refusing(app: App) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answers refusals of our own, which no service has heard of, and has them audited."""

    async def refuse(request: Request, error: Exception) -> Response:
        exchange: HttpExchange = request.state.exchange
        if isinstance(error, PermissionDenied) and exchange.principal is not None:
            app.audit.refuse(exchange.principal, exchange.action, error, client_address.get())
        return _respond(to_http(error))

    return refuse


async def _on_error(_: Request, error: Exception) -> Response:
    return _respond(to_http(error))


async def _on_validation(_: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    return _respond(validation_error(list(error.errors()), error.body))


async def _on_http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return _respond(not_found(request.method, request.url.path))
    if status == 405:
        allow = ", ".join(sorted(_methods(request)))
        return _respond(method_not_allowed(request.method, request.url.path, allow))
    return _respond(HttpError(status, "The request is not valid."))


def _methods(request: Request) -> set[str]:
    """Every method that the path takes, those that are answered outside of FastAPI too."""
    found = set(RAW_METHODS.get(request.scope["path"], ()))
    for method in METHODS:
        asked = {**request.scope, "method": method}
        if any(route.matches(asked)[0] is Match.FULL for route in request.app.routes):
            found.add(method)
    return found


def _bounded(inner: Application, limit: int) -> Application:
    """Reads the body up to `limit` beforehand, and refuses what no text column takes."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path", b"") + scope.get("query_string", b"")
        body = b""
        # Outside of /v1 nobody is asked who calls, and only forms of a sign-in are taken.
        if scope["method"] in ("POST", "PUT", "PATCH"):
            most = limit if scope["path"].startswith("/v1/") else ANONYMOUS_BODY_BYTES
            if most == limit or scope["path"].startswith("/login/"):
                body = await read_body(receive, dict(scope["headers"]), most)
        if b"%00" in raw or b"\\u0000" in body or b"\0" in body:
            raise HttpError(400, "The request contains a NUL character.", code="invalid_value")
        unread = True

        async def replay() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await inner(scope, replay, send)

    return application
