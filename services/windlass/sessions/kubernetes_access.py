"""Builds users' access to clusters' API servers: tokens, listener and shutdown."""

import asyncio
import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from windlass.api.clusters.v1 import clusters_pb2_grpc
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.api.sessions.v1 import sessions_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.audit import AuditQueue
from windlass.core import telemetry
from windlass.core.addresses import ClientAddresses
from windlass.core.app import App
from windlass.core.config import KubernetesListenerSection
from windlass.sessions.access.active_connections import ActiveConnections
from windlass.sessions.access.admission import RequestAdmission
from windlass.sessions.access.assignments import Assignments
from windlass.sessions.access.audit import AccessAudit
from windlass.sessions.access.callers import Callers
from windlass.sessions.access.tokens import AccessTokens, PublicEndpoint, SessionsServicer
from windlass.sessions.listener.certificates import own_certificate, server_context, share_authority
from windlass.sessions.listener.listener import KubernetesListener
from windlass.sessions.tunnel.tunnels import Tunnels

log = telemetry.logger("sessions.kubernetes_access")
RENEW_SECONDS = 3600.0


async def build_access(app: App, tunnels: Tunnels) -> None:
    """Registers SessionsService, and the Kubernetes listener where one is configured."""
    stub, settings = app.clients.stub, app.settings.sessions.kubernetes
    tokens = AccessTokens(app.tokens)
    assignments = Assignments(stub(clusters_pb2_grpc.ClustersInternalServiceStub))
    if settings.listen and settings.tls == "own" and settings.certificate is None:
        await share_authority(app.keyring, app.settings.data_dir / "kubernetes")
    endpoint = KubernetesEndpoint(app, settings) if settings.listen else None
    app.serve(
        SessionsServicer(
            tokens,
            assignments,
            stub(clusters_pb2_grpc.ClustersServiceStub),
            endpoint.public if endpoint else None,
        ),
        rpc.add_SessionsServiceServicer_to_server,
    )
    if endpoint is None:
        return
    callers = Callers(
        stub(rbac_pb2_grpc.RbacInternalServiceStub), stub(users_pb2_grpc.UsersInternalServiceStub)
    )
    folder = app.settings.data_dir / "spool" / "audit"
    queue = AuditQueue(lambda: stub(rbac_pb2_grpc.RbacInternalServiceStub), folder)
    audit, connections = AccessAudit(queue), ActiveConnections(callers, assignments)
    admission = RequestAdmission(
        tokens, callers, assignments, audit, ClientAddresses(app.settings.http.trusted_proxies)
    )
    listener = KubernetesListener(admission, connections, tunnels, audit)
    app.background("sessions.audit", queue.run)
    app.background("sessions.active_connections", connections.run)
    app.background("sessions.kubernetes", lambda: endpoint.run(listener))


class KubernetesEndpoint:
    """The listener's socket and certificate. It binds at once, so a taken port fails the start."""

    def __init__(self, app: App, settings: KubernetesListenerSection):
        host, _, port = settings.listen.rpartition(":")
        host = host.strip("[]")
        self._socket = _bind(host, int(port))
        url = settings.public_url or f"https://{settings.listen.rpartition(':')[0]}:{self.port}"
        self._settings = settings
        self._folder = app.settings.data_dir / "kubernetes"
        self._names = {host, urlsplit(url).hostname or host, "localhost", "127.0.0.1"}
        self._names -= {"", "0.0.0.0", "::"}  # noqa: S104
        self._tls, authority = self._context()
        if settings.ca is not None:
            authority = settings.ca.read_text()
        self.public = PublicEndpoint(url, authority)

    @property
    def port(self) -> int:
        """The bound port, of use when 0 was asked for."""
        return int(self._socket.getsockname()[1])

    async def run(self, listener: KubernetesListener) -> None:
        """Serves until cancelled; open connections then have a few seconds to finish."""
        server = await listener.start(self._socket, self._tls)
        try:
            while True:
                await asyncio.sleep(RENEW_SECONDS)
                # A renewed certificate is for connections from now on.
                with suppress(OSError, ssl.SSLError):
                    self._renew()
        finally:
            server.close()
            await listener.stop()

    def _context(self) -> tuple[ssl.SSLContext | None, str]:
        """TLS, and the PEM of the authority that clients need for it."""
        if self._settings.tls == "terminated":
            return None, ""
        if self._settings.certificate is not None and self._settings.key is not None:
            return server_context(self._settings.certificate, self._settings.key), ""
        certificate, key, authority = own_certificate(self._folder, self._names)
        return server_context(certificate, key), authority.read_text()

    def _renew(self) -> None:
        if self._tls is None:
            return
        if self._settings.certificate is not None and self._settings.key is not None:
            self._tls.load_cert_chain(self._settings.certificate, self._settings.key)
            return
        certificate, key, _ = own_certificate(self._folder, self._names)
        self._tls.load_cert_chain(certificate, key)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        message = f"cannot listen on {host}:{port}: {error.strerror}"
        raise OSError(error.errno, message) from error
    return bound
