"""One HTTP request, its caller and the common headers of its response."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from windlass.core.rpc.auth import Principal
from windlass.gateway.asgi import Headers, Message, Receive, Scope, Send
from windlass.gateway.authentication.active_requests import ActiveRequest
from windlass.gateway.listener.protocol import CLIENT_CERTIFICATE

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:-]{1,128}")
# That engines take.
_ID_LENGTH = 128
_VERSION = (b"openai-version", b"2020-10-01")


class HttpExchange:
    """A request, its answer's common headers, and its caller."""

    __slots__ = (
        "_forward", "_task", "background", "headers", "held", "identify", "method", "path",
        "principal", "receive", "request_id", "scope", "serial", "started", "status",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send):
        self.started = time.perf_counter()
        self.scope = scope
        self.receive = receive
        self._forward = send
        self._task: asyncio.Task[object] | None = None
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        # Ours alone: a client's own request id may repeat, and usage must not.
        self.serial = "req_" + os.urandom(16).hex()
        asked = self.headers.get(b"x-request-id")
        accepted = asked is not None and _REQUEST_ID.fullmatch(asked)
        self.request_id = asked.decode() if asked is not None and accepted else self.serial
        self.principal: Principal | None = None
        # Asks again who calls, for an answer that takes long; None where nobody was asked.
        self.identify: Callable[[], Awaitable[Principal]] | None = None
        # What ends it when its key does; None where no key is needed.
        self.held: ActiveRequest | None = None
        # Nobody waits for the answer itself, so that it comes after others.
        self.background = False
        # 0 until the response has begun.
        self.status = 0

    def send(self, message: Message) -> Any:
        """ASGI's send, which adds the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            elapsed = (time.perf_counter() - self.started) * 1000
            headers: Headers = [
                *message["headers"],
                (b"x-request-id", self.request_id.encode()),
                (b"openai-processing-ms", b"%d" % elapsed),
                _VERSION,
            ]
            if self.principal is not None:
                headers.append((b"openai-organization", self.principal.organization_id.encode()))
            message["headers"] = headers
        return self._forward(message)

    @property
    def unique_id(self) -> str:
        """The id that others know the request by: ours, then the client's own, which may repeat."""
        if self.request_id == self.serial:
            return self.serial
        return f"{self.serial}.{self.request_id}"[:_ID_LENGTH]

    @property
    def action(self) -> str:
        """The request's name in the audit log."""
        return f"gateway/{self.method} {self.path}"

    @property
    def peer(self) -> str:
        """The address at the other end of the connection; empty for a socket of this machine."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    @property
    def certificate(self) -> bytes:
        """The certificate of the connection's client in DER; empty where it has none."""
        found: bytes = self.scope.get(CLIENT_CERTIFICATE, b"")
        return found

    @property
    def task(self) -> asyncio.Task[object]:
        """The task that answers the request, which is the first that asks."""
        if self._task is None:
            self._task = asyncio.current_task()
        if self._task is None:
            raise AssertionError(f"{self.path} is answered outside of a task")
        return self._task

    @property
    def caller(self) -> Principal:
        """The authenticated principal; only where the path requires one."""
        if self.principal is None:
            raise AssertionError(f"{self.path} was dispatched without authentication")
        return self.principal
