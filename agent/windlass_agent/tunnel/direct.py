"""The door of a machine: its engines for gateways that come directly, beside the tunnel.

It shows a certificate of one life of the agent, whose digest the agent tells the control plane, and
lets nobody in but clients of the authority that the control plane names.
"""

import hashlib
import ssl
from collections.abc import Callable

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.telemetry import logger
from windlass.inference_api.routes import SERVES
from windlass.tunnel.authority import Authority, show
from windlass_agent.engines.boundary import boundary
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.keeper.passing import PASSED_ROUTES, away, engine_session, pass_on

# For requests that are open when the agent ends, which end at their engines too.
_SHUTDOWN_SECONDS = 0.1
_log = logger("direct")


class MachineDoor:
    """A listener with TLS; the host that a request names is the workload that it is for."""

    def __init__(self, listen: str, address: str = ""):
        """`listen` is `host:port`, and `address` where gateways find that, if it differs."""
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._address = address
        self._find: Callable[[str], str] = lambda _: ""
        self._trusted = b""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
        # Until an authority is named, nobody's certificate is good.
        self._tls.verify_mode = ssl.CERT_REQUIRED
        certificate, key = Authority.make().issue("engines")
        show(self._tls, certificate, key)
        shown = x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)
        self._digest = hashlib.sha256(shown).digest()
        # A client that leaves cancels its request, here and at the engine.
        self._runner = web.AppRunner(
            self._app(),
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            access_log=None,
        )

    async def open(self) -> pb.DirectEndpoint:
        """Listens; returns what to tell of it. Raises OSError."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls)
        await site.start()
        port = self._runner.addresses[0][1]
        address = self._address or f"{self._bracketed}:{port}"
        _log.info("engines_reached_directly", address=address)
        return pb.DirectEndpoint(address=address, certificate_digest=self._digest)

    async def close(self) -> None:
        """Ends every request, and stops listening."""
        await self._runner.cleanup()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._runner.server.connections) if self._runner.server else 0

    def serve(self, find: Callable[[str], str]) -> None:
        """Answers for the workloads of which `find` tells the endpoint; "" for any other."""
        self._find = find

    def trust(self, authority: bytes) -> None:
        """Lets clients of an authority (PEM) in; raises ssl.SSLError."""
        if authority and authority != self._trusted:
            self._tls.load_verify_locations(cadata=authority.decode())
            self._trusted = authority

    @property
    def _bracketed(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[boundary])
        app.router.add_get(SERVES, self._answer_serves)
        for path in PASSED_ROUTES:
            app.router.add_post(path, self._pass_on)
        return app

    async def _answer_serves(self, request: web.Request) -> web.StreamResponse:
        """Raises ApiError for a workload that does not serve here."""
        if not self._find(request.host):
            raise away()
        return web.Response()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if not (endpoint := self._find(request.host)):
            raise away()
        async with engine_session(parse_endpoint(endpoint)) as session:
            return await pass_on(request, session)
