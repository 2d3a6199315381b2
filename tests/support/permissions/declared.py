"""Permissions that each route asks for, as its own code says when it is run without services."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import MagicMock

import httpx
from starlette.types import Receive, Scope, Send
from tests.support.clients.example_requests import Operation, operations
from tests.support.clients.wire import methods_for, short

from windlass.api.auth.v1 import auth_pb2
from windlass.gateway.app import KEYED_PAGES
from windlass.gateway.openapi import inference, make_document
from windlass.gateway.resource_router import built
from windlass.gateway.rest import make_api
from windlass.policy import PERMISSIONS

RULES = {short(name): rule for name, rule in methods_for(auth_pb2.AUDIENCE_TENANT).items()}
# What is answered outside of FastAPI, by the RPC that it is for.
RAW = {
    "POST /v1/files": "FilesService/CreateUpload",
    "POST /v1/fine_tuning/jobs": "JobsService/CreateJob",
}
INFERENCE = "inference.invoke"


class Recorder:
    """Stands for a caller who may do everything, and for services that answer with nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def stub(self, kind: Callable[[Any], Any]) -> Any:
        """A stub that records the permission of each RPC."""
        return kind(self)

    def may(self, permission: str) -> bool:
        """Records a permission that the gateway itself asks for."""
        self.asked.append(permission)
        return True

    def unary_unary(
        self, method: str, *, response_deserializer: Callable[[bytes], Any], **_: Any
    ) -> Callable[..., Awaitable[Any]]:
        """An RPC that is answered by an empty message."""

        async def call(request: Any, **_: Any) -> Any:
            self.may(RULES[short(method)].permission)
            answer = response_deserializer(b"")
            # By which the gateway asks, too.
            if short(method) == "RbacService/Check" and request.permission in PERMISSIONS:
                answer.allowed = self.may(request.permission)
            return answer

        return call

    def unary_stream(self, method: str, **_: Any) -> Callable[..., AsyncIterator[Any]]:
        """An RPC that is answered by an empty stream."""

        def call(*_: Any, **options: Any) -> AsyncIterator[Any]:
            self.may(RULES[short(method)].permission)
            return _nothing()

        return call

    # Of internal services, which no route asks.
    stream_unary = stream_stream = unary_unary


async def _nothing() -> AsyncIterator[Any]:
    messages: tuple[Any, ...] = ()
    for message in messages:
        yield message


async def declared(bodies: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The permissions that each operation asks for, in their order, by its name."""
    recorder, app = Recorder(), MagicMock(objects=None)
    app.clients.stub = recorder.stub
    exchange = MagicMock(peer="", headers={}, certificate=b"")
    exchange.caller.may = recorder.may
    api = make_api(app, MagicMock(), MagicMock())

    async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"] = {"exchange": exchange}
        await api(scope, receive, send)

    found: dict[str, tuple[str, ...]] = {}
    transport = httpx.ASGITransport(admitted)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        for operation in operations(make_document(api), bodies):
            recorder.asked.clear()
            # An empty answer may be one that the route cannot show.
            with contextlib.suppress(Exception):
                await http.request(*operation.target(), **operation.options())
            found[operation.name] = _outside(operation) or tuple(recorder.asked)
    return found


def open_routes() -> set[str]:
    """The routes that the code declares to be for everybody."""
    api = make_api(MagicMock(), MagicMock(), MagicMock())
    described = {one.name for one in operations(make_document(api)) if one.is_open}
    return described | {
        f"{method} {route.path}"
        for route in routes_of(api.routes)
        if not route.include_in_schema and route.path not in KEYED_PAGES
        for method in route.methods
    }


def routes_of(routes: Sequence[Any]) -> Iterator[Any]:
    """Yields routes; FastAPI keeps what it includes as routers, under a type of its own."""
    for one in built(routes):
        included = getattr(one, "original_router", None)
        yield from [one] if included is None else included.routes


def _outside(operation: Operation) -> tuple[str, ...]:
    """The permission of what is answered outside of FastAPI; nothing for the rest."""
    if operation.path in inference.paths():
        return (INFERENCE,)
    return (RULES[RAW[operation.name]].permission,) if operation.name in RAW else ()
