"""The gRPC server of a process: a Unix socket for its own, a TCP listener when configured."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from windlass.core.config import TlsSection
from windlass.core.rpc.clients import MESSAGE_BYTES, TRANSPORT_OPTIONS

if TYPE_CHECKING:
    # It stands on the boundary, which agents have no use for.
    from windlass.core.rpc.local import LocalServices

SERVER_OPTIONS = (
    *TRANSPORT_OPTIONS,
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 25_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Agents ping while idle; the default answers that with GOAWAY too_many_pings.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
    # A peer that connects and says nothing; gRPC's own is two minutes.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_metadata_size", 16 * 1024),
)


class Server:
    """Collects servicers, then serves them behind the given interceptors.

    `local` gets them too, for calls of this process to itself.
    """

    def __init__(
        self,
        interceptors: Sequence[Any],
        *,
        max_concurrent: int = 2000,
        local: "LocalServices | None" = None,
    ):
        self._server = grpc.aio.server(
            interceptors=tuple(interceptors),
            options=SERVER_OPTIONS,
            maximum_concurrent_rpcs=max_concurrent,
        )
        self._names: list[str] = []
        self._local = local
        self._health = health.aio.HealthServicer()

    def add(self, servicer: object, register: Callable[[Any, Any], None]) -> None:
        """Adds a servicer with the function that its generated module has for it."""
        register(servicer, self._server)
        if self._local is not None:
            self._local.add(servicer, register)
        package = register.__module__.rpartition(".")[0]
        # `add_JobsServiceServicer_to_server` names the service.
        match = re.fullmatch(r"add_(\w+)Servicer_to_server", register.__name__)
        if match:
            self._names.append(f"{package}.{match[1]}")

    async def start(
        self,
        *,
        socket: Path,
        listen: str = "",
        tls: TlsSection | None = None,
        reflect: bool = False,
    ) -> None:
        """Binds and serves; raises RuntimeError when an address cannot be bound.

        `reflect`: whether anybody may list the services and their messages.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if reflect:
            reflection.enable_server_reflection(
                [*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME], self._server
            )
        socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{socket}")
        if listen:
            self._bind_tcp(listen, tls or TlsSection())
        await self._server.start()
        socket.chmod(0o600)
        await self.set_serving(True)

    def _bind_tcp(self, listen: str, tls: TlsSection) -> None:
        if tls.certificate is None or tls.key is None:
            self._server.add_insecure_port(listen)
            return
        credentials = grpc.ssl_server_credentials(
            [(tls.key.read_bytes(), tls.certificate.read_bytes())],
            root_certificates=tls.client_ca.read_bytes() if tls.client_ca else None,
            require_client_auth=tls.client_ca is not None,
        )
        self._server.add_secure_port(listen, credentials)

    async def set_serving(self, serving: bool) -> None:
        """Sets the answer of gRPC health, for the process and for each service."""
        kind = health_pb2.HealthCheckResponse
        status = kind.SERVING if serving else kind.NOT_SERVING
        for name in ["", *self._names]:
            await self._health.set(name, status)

    async def stop(self, grace_seconds: float) -> None:
        """Refuses new calls, gives open ones `grace_seconds`."""
        await self.set_serving(False)
        await self._server.stop(grace_seconds)
