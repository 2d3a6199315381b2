"""Stubs to the other services: one channel per address, metadata and deadlines filled in."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import grpc

from windlass.core import telemetry
from windlass.core.auth import principal_token

Stub = TypeVar("Stub")
UNARY_SECONDS = 30.0
MESSAGE_BYTES = 16 * 1024 * 1024

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 25_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
)


class _Identity:
    """Who we are, on whose behalf, and which request this is, as metadata."""

    def __init__(self, service_token: Callable[[], str]):
        self._service_token = service_token

    def _fill(self, details: Any, timeout: float | None) -> grpc.aio.ClientCallDetails:
        metadata = grpc.aio.Metadata(*(details.metadata or ()))
        metadata.add("windlass-service", self._service_token())
        if identifier := telemetry.request_id.get():
            metadata.add("x-request-id", identifier)
        if (token := principal_token.get()) and metadata.get("windlass-principal") is None:
            metadata.add("windlass-principal", token)
        return grpc.aio.ClientCallDetails(
            details.method, timeout, metadata, details.credentials, details.wait_for_ready
        )


# grpc.aio files an interceptor under one shape alone, hence two classes.
class _UnaryIdentity(_Identity, grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        timeout = client_call_details.timeout
        details = self._fill(client_call_details, UNARY_SECONDS if timeout is None else timeout)
        return await continuation(details, request)


class _StreamIdentity(_Identity, grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        details = self._fill(client_call_details, client_call_details.timeout)
        return await continuation(details, request)


class Clients:
    """Makes stubs by service; an address that is missing is found at start-up, not in use."""

    def __init__(
        self,
        *,
        own_address: str,
        own_services: Collection[str],
        peers: Mapping[str, str],
        service_token: Callable[[], str],
    ):
        self._own_address = own_address
        self._own_services = own_services
        self._peers = peers
        self._service_token = service_token
        self._channels: dict[str, grpc.aio.Channel] = {}

    def address(self, service: str) -> str:
        """Where a service answers.

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
        address = self.address(service)
        if address not in self._channels:
            self._channels[address] = self._open(address)
        return kind(self._channels[address])

    def _open(self, address: str) -> grpc.aio.Channel:
        interceptors: list[grpc.aio.ClientInterceptor] = [
            _UnaryIdentity(self._service_token),
            _StreamIdentity(self._service_token),
        ]
        return grpc.aio.insecure_channel(
            address, options=CHANNEL_OPTIONS, interceptors=interceptors
        )

    async def close(self) -> None:
        """Closes every channel."""
        for channel in self._channels.values():
            await channel.close()
