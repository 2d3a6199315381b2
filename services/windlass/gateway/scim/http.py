"""SCIM as HTTP has it."""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import orjson

from windlass.api.users.v1 import directory_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.asgi import Headers, encoded, read_body, respond
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.scim.errors import MEDIA_TYPE, PREFIX, ScimError
from windlass.gateway.scim.requests import MAX_BODY_BYTES, ScimAnswer, ScimRequest, parsed

Answer = Callable[[ScimRequest, str], Awaitable[ScimAnswer]]


class ScimHandler:
    """Reads requests of SCIM, and writes the answers."""

    def __init__(self, app: App):
        self._stub = app.clients.stub(rpc.DirectoryServiceStub)
        self._public_url = app.settings.public_url
        self._answer: Answer | None = None

    async def handle(self, exchange: HttpExchange) -> None:
        """Answers one request; raises what `scim_error` takes."""
        if self._answer is None:
            self._answer = await asyncio.to_thread(_load, self._stub)
        raw: bytes = exchange.scope.get("raw_path") or exchange.path.encode()
        query: bytes = exchange.scope["query_string"]
        body = b""
        if exchange.method in ("POST", "PUT", "PATCH"):
            body = await read_body(exchange.receive, exchange.headers, MAX_BODY_BYTES)
        if b"%00" in raw + query or b"\\u0000" in body:
            raise ScimError(400, "The request contains a NUL character.", "invalidSyntax")
        header = exchange.headers.get
        asked = ScimRequest(
            exchange.method,
            # Not decoded: an id may hold a slash.
            raw.decode("latin-1").removeprefix(PREFIX).strip("/"),
            dict(parse_qsl(query.decode("latin-1"), max_num_fields=32)),
            parsed(body) if body else {},
            header(b"if-match", b"").decode("latin-1"),
            header(b"if-none-match", b"").decode("latin-1"),
        )
        answer = await self._answer(asked, self._base(exchange))
        said = (("content-type", MEDIA_TYPE), ("etag", answer.tag), ("location", answer.location))
        headers: Headers = encoded(pair for pair in said if pair[1])
        content = b"" if answer.content is None else orjson.dumps(answer.content)
        await respond(exchange.send, answer.status, headers, content)

    def _base(self, exchange: HttpExchange) -> str:
        host = exchange.headers.get(b"host", b"").decode("latin-1")
        return (self._public_url or f"{exchange.scope['scheme']}://{host}") + PREFIX


def _load(stub: rpc.DirectoryServiceAsyncStub) -> Answer:
    # As the package says: most installations never need it.
    from windlass.gateway.scim.endpoint import ScimEndpoint

    return ScimEndpoint(stub).answer
