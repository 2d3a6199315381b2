"""The front of the tinker SDK: finds the route of a request, and writes its answer."""

import asyncio
from email.utils import formatdate

import orjson

from windlass.api.rbac.v1 import rbac_pb2_grpc as rbac_rpc
from windlass.api.tuning.v1 import seats_pb2_grpc as seats_rpc
from windlass.api.tuning.v1 import transfer_pb2_grpc as transfer_rpc
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.asgi import JSON, Headers, respond
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.disconnect_watch import DisconnectWatch
from windlass.gateway.tinker.audit import AuditRoutes
from windlass.gateway.tinker.errors import PREFIX, TinkerError
from windlass.gateway.tinker.lending import Lending
from windlass.gateway.tinker.management import ManagementRoutes
from windlass.gateway.tinker.replaying import ReplayRoutes
from windlass.gateway.tinker.requests import PROTOBUF, read_request
from windlass.gateway.tinker.routing import Binary, Redirect, TinkerRoute
from windlass.gateway.tinker.sampling import SamplingRoutes
from windlass.gateway.tinker.searching import SearchRoutes
from windlass.gateway.tinker.sessions import SessionRoutes
from windlass.gateway.tinker.training import TrainingRoutes
from windlass.gateway.tinker.transfers import TransferRoutes

HEALTH = PREFIX + "healthz"
_BINARY = (b"content-type", PROTOBUF.encode())


class TinkerHandler:
    """Answers requests of the SDK."""

    def __init__(self, app: App, lending: Lending):
        tuning = app.clients.stub(rpc.TuningServiceStub)
        transfers = app.clients.stub(transfer_rpc.TransferServiceStub)
        audit = app.clients.stub(rbac_rpc.RbacServiceStub)
        self._max_bytes = app.settings.http.max_body_bytes
        self._routes: tuple[TinkerRoute, ...] = tuple(
            one
            for group in (
                SearchRoutes(tuning),
                SessionRoutes(tuning),
                TrainingRoutes(tuning, lending),
                SamplingRoutes(tuning),
                # Its paths are below those of checkpoints, whose names take slashes.
                TransferRoutes(tuning, transfers, lending),
                ManagementRoutes(tuning, app.clients.stub(seats_rpc.SeatsServiceStub)),
                ReplayRoutes(tuning),
                AuditRoutes(audit),
            )
            for one in group.routes()
        )

    async def healthy(self, exchange: HttpExchange) -> None:
        """Answers that somebody is there, to whoever asks."""
        await respond(exchange.send, 200, [JSON], b'{"status":"ok"}')

    async def handle(self, exchange: HttpExchange) -> None:
        """Answers one request of a known caller; raises TinkerError, AioRpcError."""
        found, names = self._find(exchange.method, exchange.path)
        request = await read_request(exchange, names, self._max_bytes)
        if not found.is_long:
            answer = await found.answer(request)
        else:
            with DisconnectWatch(exchange.receive, exchange.task) as watch:
                try:
                    answer = await found.answer(request)
                except asyncio.CancelledError:
                    if not watch.happened:
                        raise
                    return
        if isinstance(answer, Binary):
            await respond(exchange.send, 200, [_BINARY], answer.content)
        elif isinstance(answer, Redirect):
            await respond(exchange.send, 302, _elsewhere(answer), b"")
        elif answer is None:
            await respond(exchange.send, 204, [], b"")
        else:
            await respond(exchange.send, 200, [JSON], orjson.dumps(answer))

    def _find(self, method: str, path: str) -> tuple[TinkerRoute, dict[str, str]]:
        below = path.removeprefix(PREFIX)
        allowed = set()
        for one in self._routes:
            found = one.path.fullmatch(below)
            if found is not None and one.method == method:
                return one, found.groupdict()
            if found is not None:
                allowed.add(one.method)
        if allowed:
            allow = ", ".join(sorted(allowed))
            raise TinkerError(
                405,
                f"Method {method} is not allowed for {path[:256]}.",
                code="method_not_allowed",
                headers={"allow": allow},
            )
        raise TinkerError(404, f"Unknown request URL: {path[:256]}.", code="unknown_url")


def _elsewhere(answer: Redirect) -> Headers:
    expires = formatdate(answer.expires_at, usegmt=True)
    return [
        (b"location", answer.url.encode()),
        (b"expires", expires.encode()),
        (b"cache-control", b"private, no-store"),
    ]
