"""Stubs to the other services: one channel per address, metadata and deadlines filled in."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from windlass.core import telemetry
from windlass.core.rpc.auth import client_address, principal_token

if TYPE_CHECKING:
    # It stands on the boundary, which agents have no use for.
    from windlass.core.rpc.local import LocalServices

Stub = TypeVar("Stub")
UNARY_SECONDS = 30.0
TLS_SCHEME = "grpcs://"
MESSAGE_BYTES = 16 * 1024 * 1024

# Of every connection, at both ends. What a stream's reader does not take waits in memory, so
# its window is of one size, not as large as the line could fill.
TRANSPORT_OPTIONS = (
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 512 * 1024),
    ("grpc.http2.max_frame_size", 64 * 1024),
    # Else gRPC waits a minute for the answer to a keepalive's ping, whatever the keepalive says.
    ("grpc.http2.ping_timeout_ms", 10_000),
)
CHANNEL_OPTIONS = (
    *TRANSPORT_OPTIONS,
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 25_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
)
# Of a server that such a channel reaches. gRPC's default answers
# pings of an idle channel with GOAWAY too_many_pings, which ends the connection.
PINGED_OPTIONS = (*CHANNEL_OPTIONS, ("grpc.http2.min_ping_interval_without_data_ms", 10_000))


class _Channel:
    """Says who we are, on whose behalf, and which request this is, with every call.

    Calls with one request to `local` services take no socket.

    What generated stubs need of a channel; grpc.aio's own interceptors would wrap each
    call in tasks, which doubles what it costs.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        service_token: Callable[[], str],
        local: "LocalServices | None",
    ):
        self._channel = channel
        self._service_token = service_token
        self._local = local

    def unary_unary(self, method: str, **options: Any) -> Callable[..., Any]:
        """A call with a deadline."""
        call = self._channel.unary_unary(method, **options)

        def start(request: Any, *, timeout: float | None = None, **fields: Any) -> Any:
            seconds = UNARY_SECONDS if timeout is None else timeout
            fields = self._identified(fields)
            if self._local is not None and self._local.serves(method):
                return self._local.call(method, request, timeout=seconds, **fields)
            return call(request, timeout=seconds, **fields)

        return start

    def unary_stream(self, method: str, **options: Any) -> Callable[..., Any]:
        """A stream without one."""
        call = self._channel.unary_stream(method, **options)

        def start(request: Any, **fields: Any) -> Any:
            fields = self._identified(fields)
            if self._local is not None and self._local.serves(method):
                return self._local.stream(method, request, **fields)
            return call(request, **fields)

        return start

    def stream_stream(self, method: str, **options: Any) -> Callable[..., Any]:
        """Streams both ways, without a deadline."""
        call = self._channel.stream_stream(method, **options)
        return lambda **fields: call(**self._identified(fields))

    def _identified(self, fields: dict[str, Any]) -> dict[str, Any]:
        metadata = [*(fields.get("metadata") or ()), ("windlass-service", self._service_token())]
        if identifier := telemetry.request_id.get():
            metadata.append(("x-request-id", identifier))
        if address := client_address.get():
            metadata.append(("windlass-client", address))
        token = principal_token.get()
        if token and not any(name == "windlass-principal" for name, _ in metadata):
            metadata.append(("windlass-principal", token))
        return {**fields, "metadata": metadata}

    async def close(self) -> None:
        """Ends every call."""
        await self._channel.close()


class Clients:
    """Makes stubs by service; an address that is missing is found at start-up, not in use."""

    def __init__(
        self,
        *,
        own_address: str,
        own_services: Collection[str],
        peers: Mapping[str, str],
        service_token: Callable[[], str],
        ca: Path | None = None,
        local: "LocalServices | None" = None,
    ):
        """`ca` is the PEM of the authority of peers' certificates, the system's if None.

        `local` answers calls to `own_address`; without it, they go over the socket too.
        """
        self._own_address = own_address
        self._local = local
        self._own_services = own_services
        self._peers = peers
        self._service_token = service_token
        self._ca = ca
        self._channels: dict[str, _Channel] = {}

    def address(self, service: str) -> str:
        """The address of a service.

        Raises LookupError that names the configuration key when nothing says so.
        """
        if service in self._own_services:
            return self._own_address
        if address := self._peers.get(service):
            return address
        raise LookupError(f"peers.{service} is not set, and {service} is not one of the targets")

    def stub(self, kind: Callable[[grpc.aio.Channel], Stub]) -> Stub:
        """A stub such as `FilesServiceStub`, whose module names the service that answers it."""
        service = kind.__module__.split(".")[2]
        return self.stub_at(kind, self.address(service))

    def stub_or_none(self, kind: Callable[[grpc.aio.Channel], Stub]) -> Stub | None:
        """A stub of a service that not every installation needs; None where no peer is named."""
        try:
            return self.stub(kind)
        except LookupError:
            return None

    def stub_at(self, kind: Callable[[grpc.aio.Channel], Stub], address: str) -> Stub:
        """The same at one of several processes of a service: `grpcs://host:port` or a socket."""
        if address not in self._channels:
            self._channels[address] = self._open(address)
        return kind(cast(grpc.aio.Channel, self._channels[address]))

    def _open(self, address: str) -> _Channel:
        if address.startswith(TLS_SCHEME):
            credentials = grpc.ssl_channel_credentials(self._ca.read_bytes() if self._ca else None)
            target = address.removeprefix(TLS_SCHEME)
            channel = grpc.aio.secure_channel(target, credentials, options=CHANNEL_OPTIONS)
        else:
            channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        local = self._local if address == self._own_address else None
        return _Channel(channel, self._service_token, local)

    async def close(self) -> None:
        """Closes every channel."""
        for channel in self._channels.values():
            await channel.close()
