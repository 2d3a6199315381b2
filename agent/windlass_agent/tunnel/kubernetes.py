"""The API server as a target: one request for each connection, under an account of ours.

The agent adds the credential that the server never had. A connection of its own is judged by
the account that each request names, so the agent writes the head itself, and lets no byte
pass beyond the one request.
"""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from windlass.api.sessions.v1.sessions_pb2 import (
    ACCESS_LEVEL_EDITOR,
    ACCESS_LEVEL_VIEWER,
    KubernetesTarget,
)
from windlass.tunnel.http1 import RequestHead, first
from windlass.tunnel.http1_bodies import MalformedHttp
from windlass_agent.kube.access import Access
from windlass_agent.namespaces.controller import Accounts
from windlass_agent.tunnel.exchange import TunnelExchange
from windlass_agent.tunnel.pool import TargetConnectionPool
from windlass_agent.tunnel.refusal import TargetRefused
from windlass_agent.tunnel.sockets import Socket, connect

USER_EXTRA = "Impersonate-Extra-Windlass-User"
USER_LENGTH = 256
_UNPRINTABLE = re.compile(r"[^!-~]")
# These claim an identity, or belong to one hop.
_NEVER = frozenset({
    "authorization", "cookie", "forwarded", "host", "connection", "keep-alive", "te", "trailer",
    "transfer-encoding", "content-length", "upgrade", "expect",
})  # fmt: skip
_NEVER_BEGIN = ("impersonate-", "x-remote-", "x-forwarded-", "proxy-")
# A WebSocket subprotocol that is a credential.
_BEARER = "bearer.authorization"


class KubernetesApi:
    """Connections to the API server; idle ones are kept for the next request."""

    def __init__(self, access: Access, accounts: Callable[[str], Accounts | None]):
        """`accounts` returns whom to act as in a namespace, None for one that is not ours."""
        parts = urlsplit(access.url)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if access.tls is not None else 80)
        self._prefix = parts.path.rstrip("/")
        self._access = access
        self._accounts = accounts
        self._pool = TargetConnectionPool(self._connect)

    async def open(self, target: KubernetesTarget) -> TunnelExchange:
        """A connection for one request; raises TargetRefused."""
        accounts = self._accounts(target.namespace)
        if accounts is None:
            raise TargetRefused(
                f"The namespace {target.namespace!r} is not set up in this cluster."
            )
        if target.level == ACCESS_LEVEL_EDITOR:
            name = accounts.editor
        elif target.level == ACCESS_LEVEL_VIEWER:
            name = accounts.viewer
        else:
            raise TargetRefused("The target names no account.")
        user = _UNPRINTABLE.sub("?", target.user)[:USER_LENGTH]

        async def head(request: RequestHead) -> bytes:
            return self._head(request, name, user, await self._access.authorization())

        try:
            return TunnelExchange(self._pool, *await self._pool.take(), head)
        except OSError as error:
            raise TargetRefused(f"The cluster's API server does not answer: {error}.") from error

    def close(self) -> None:
        """Closes idle connections."""
        self._pool.close()

    async def _connect(self) -> Socket:
        access = self._access
        # Programs in pods may read late what `kubectl exec` and `cp` send them.
        return await connect(
            self._host,
            self._port,
            tls=access.tls,
            server_name=access.server_name,
            may_stall=True,
        )

    def _head(self, request: RequestHead, account: str, user: str, authorization: str) -> bytes:
        """The request's head as the account says it; raises MalformedHttp."""
        if _BEARER in first(request.headers, "sec-websocket-protocol"):
            raise MalformedHttp("A subprotocol carries a credential.", status=403)
        lines = [
            f"{request.method} {self._prefix}{request.target} HTTP/1.1",
            f"Host: {self._host}:{self._port}",
            f"Impersonate-User: {account}",
        ]
        if authorization:
            lines.append(f"Authorization: {authorization}")
        if user:
            lines.append(f"{USER_EXTRA}: {user}")
        for name, value in request.headers:
            if name not in _NEVER and not name.startswith(_NEVER_BEGIN):
                lines.append(f"{name}: {value}")
        if request.upgrade:
            lines += ["Connection: Upgrade", f"Upgrade: {first(request.headers, 'upgrade')}"]
        if request.length or request.method not in ("GET", "HEAD"):
            lines.append(f"Content-Length: {request.length}")
        return "\r\n".join([*lines, "", ""]).encode()
