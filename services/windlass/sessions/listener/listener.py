"""The Kubernetes listener: TLS connections whose requests are admitted one by one."""

import asyncio
import contextlib
import socket
import ssl

from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.metrics import tunnel as metrics
from windlass.sessions.access.active_connections import ActiveConnections, Open
from windlass.sessions.access.admission import (
    AdmittedRequest,
    RequestAdmission,
    RequestRejected,
    rejected,
)
from windlass.sessions.access.audit import AccessAudit, outcome
from windlass.sessions.access.kube_request import KubeRequest
from windlass.sessions.access.kube_status import refusal
from windlass.sessions.listener.client_connection import ClientConnection
from windlass.sessions.listener.exchange import ClientExchange
from windlass.sessions.tunnel.tunnels import Tunnels
from windlass.tunnel.http1 import RequestHead, parse_request
from windlass.tunnel.http1_bodies import MalformedHttp
from windlass.tunnel.tls import TlsTransport

log = telemetry.logger("sessions.listener")
CONNECTIONS = 8000
# For a head once begun, and for the next request on a connection that is kept.
IDLE_SECONDS = 90.0
GRACE_SECONDS = 5.0
# For the audit alone.
CLIENT_LEFT = 499
HEALTH = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nok\n"


class KubernetesListener:
    """Serves kubectl and other clients of the Kubernetes API."""

    def __init__(
        self,
        admission: RequestAdmission,
        connections: ActiveConnections,
        tunnels: Tunnels,
        audit: AccessAudit,
    ):
        self._admission = admission
        self._open = connections
        self._tunnels = tunnels
        self._audit = audit
        self._connections: dict[asyncio.Task[None], ClientConnection] = {}
        # Those that wait for a request, and so may end at any time.
        self._idle: set[ClientConnection] = set()
        self._stopping = False

    async def start(self, bound: socket.socket, tls: ssl.SSLContext | None) -> asyncio.Server:
        """Serves on a bound socket."""

        def connected() -> asyncio.BaseProtocol:
            client = ClientConnection(self._begin)
            return client if tls is None else TlsTransport(client, tls, server_side=True)

        return await asyncio.get_running_loop().create_server(connected, sock=bound, backlog=1024)

    async def stop(self) -> None:
        """Closes idle connections at once and others after a few seconds."""
        self._stopping = True
        for client in tuple(self._idle):
            client.close()
        if self._connections:
            await asyncio.wait(tuple(self._connections), timeout=GRACE_SECONDS)
        for task, client in tuple(self._connections.items()):
            client.abort()
            task.cancel()
        if self._connections:
            await asyncio.wait(tuple(self._connections), timeout=GRACE_SECONDS)

    def _begin(self, client: ClientConnection) -> None:
        if self._stopping or len(self._connections) >= CONNECTIONS:
            client.abort()
            return
        task = asyncio.create_task(self._serve(client))
        self._connections[task] = client
        metrics.KUBERNETES_CONNECTIONS.inc()
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._connections[task]
        metrics.KUBERNETES_CONNECTIONS.dec()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("connection_failed", exc_info=error)

    async def _serve(self, client: ClientConnection) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while not self._stopping and await self._request(client):
                    pass
        finally:
            client.close()

    async def _request(self, client: ClientConnection) -> bool:
        """Serves one request; returns True if another may follow."""
        try:
            head = await self._next(client)
        except MalformedHttp as error:
            metrics.KUBERNETES_REQUESTS.labels(outcome(error.status)).inc()
            await client.write(refusal(error.status, error.message, closes=True))
            return False
        if head is None:
            return False
        if head.target == "/healthz":
            await client.write(HEALTH)
            return not head.closes
        # What follows a refused request may be its body, or bytes of another protocol.
        closes = head.closes or head.length > 0 or bool(head.upgrade)
        try:
            return await self._answer(client, head)
        except RequestRejected as error:
            metrics.KUBERNETES_REQUESTS.labels(outcome(error.status)).inc()
            answer = refusal(error.status, error.message, closes=closes, about=error.about)
            await client.write(answer)
            return not closes

    async def _answer(self, client: ClientConnection, head: RequestHead) -> bool:
        """Returns it from the cluster; raises RequestRejected where the answer is ours."""
        try:
            admitted = await self._admission.admit(head, client.peer)
        except RequestRejected:
            raise
        except Exception as error:
            raise self._unexpected(error) from error
        return await self._exchange(client, head, admitted)

    @staticmethod
    def _unexpected(error: Exception) -> RequestRejected:
        log.error("unexpected_error", exc_info=error)
        return RequestRejected(500, "Something went wrong.")

    async def _next(self, client: ClientConnection) -> RequestHead | None:
        self._idle.add(client)
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                head = await client.read_head()
        except TimeoutError:
            return None
        finally:
            self._idle.discard(client)
        return None if head is None else parse_request(head)

    async def _exchange(
        self, client: ClientConnection, head: RequestHead, admitted: AdmittedRequest
    ) -> bool:
        exchange = ClientExchange(client, head, admitted)
        audited = False

        def answered(status: int) -> None:
            nonlocal audited
            audited = True
            metrics.KUBERNETES_REQUESTS.labels(outcome(status)).inc()
            self._record(admitted, status)

        one = Open(
            admitted.identity,
            admitted.cluster_id,
            admitted.namespace,
            admitted.allowed.permission,
            exchange.abort,
            admitted.address,
            admitted.certificate,
        )
        try:
            async with self._open.opened(one):
                return await exchange.run(self._tunnels, answered)
        except AppError as error:
            failure = rejected(error, about=admitted.request)
        except MalformedHttp as error:
            log.warning(
                "cluster_response_refused", cluster_id=admitted.cluster_id, reason=error.message
            )
            failure = RequestRejected(
                502, "The cluster's response is not HTTP.", about=admitted.request
            )
        except TimeoutError:
            failure = RequestRejected(
                408, "The request's body did not arrive in time.", about=admitted.request
            )
        except ConnectionError:
            raise
        except Exception as error:
            failure = self._unexpected(error)
        if exchange.answered:
            # Cut short, and seen to be: nothing else may be taken for the rest of it.
            client.abort()
            return False
        if not audited:
            self._record(admitted, CLIENT_LEFT if client.lost else failure.status)
        raise failure

    def _record(self, admitted: AdmittedRequest, status: int) -> None:
        request: KubeRequest = admitted.request
        self._audit.record(
            admitted.identity,
            admitted.caller,
            admitted.cluster_id,
            request,
            status,
            admitted.address,
        )
