"""The call of a keeper to its agent, made anew for as long as the keeper lives."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import grpc

from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.api.keeper.v1.keeper_pb2_grpc import KeeperServiceAsyncStub, KeeperServiceStub
from windlass.core.backoff import Backoff
from windlass.core.errors import from_rpc
from windlass.core.rpc.clients import CHANNEL_OPTIONS
from windlass.core.telemetry import logger

# A certificate lasts longer by far; a new call brings a new one.
RENEW_SECONDS = 24 * 3600.0

log = logger("keeper.link")
Metadata = tuple[tuple[str, str], ...]


class Kept(Protocol):
    """The engine that is reported."""

    changed: asyncio.Event

    def state(self) -> pb.EngineState:
        """The engine as it is now."""


class KeeperLink:
    """Client of KeeperService. `hear` is called with each order.

    `resident` is the workload of a keeper in a pod that hosts several.
    """

    def __init__(self, address: str, *, token: Path, authority: Path, resident: str = ""):
        credentials = grpc.ssl_channel_credentials(authority.read_bytes())
        self._channel = grpc.aio.secure_channel(address, credentials, CHANNEL_OPTIONS)
        self._stub: KeeperServiceAsyncStub = KeeperServiceStub(self._channel)
        # The kubelet renews it.
        self._token = token
        self._resident = resident

    async def run(
        self, request: Callable[[], bytes], kept: Kept, hear: Callable[[pb.EngineOrder], None]
    ) -> None:
        """Reports and listens until cancelled; `request` makes a certificate request."""

        def call(metadata: Metadata) -> Any:
            reports = _reports(request(), kept, self._resident)
            return self._stub.Keep(reports, metadata=metadata)

        await self._hold(call, hear)

    async def host(
        self,
        reports: Callable[[], AsyncIterator[pb.HostReport]],
        hear: Callable[[pb.HostOrder], None],
    ) -> None:
        """Reports residents and listens until cancelled; each call has `reports` of its own."""

        def call(metadata: Metadata) -> Any:
            return self._stub.Host(reports(), metadata=metadata)

        await self._hold(call, hear)

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    async def _hold(self, make: Callable[[Metadata], Any], hear: Callable[[Any], None]) -> None:
        """Makes a call, and another whenever one has ended."""
        pauses = Backoff(shortest=0.1, longest=5.0)
        while True:
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._once(make, hear, pauses)
            except TimeoutError:
                continue
            except grpc.aio.AioRpcError as error:
                message = from_rpc(error).message
                log.info("agent_away", code=error.code().name, message=message)
            await pauses.pause()

    async def _once(
        self, make: Callable[[Metadata], Any], hear: Callable[[Any], None], pauses: Backoff
    ) -> None:
        call = make((("authorization", f"Bearer {self._token.read_text().strip()}"),))
        try:
            async for order in call:
                pauses.reset()
                hear(order)
        finally:
            call.cancel()


async def _reports(request: bytes, kept: Kept, resident: str) -> AsyncIterator[pb.KeeperReport]:
    """The certificate request with the present state, then each state that differs."""
    kept.changed.clear()
    told = kept.state()
    yield pb.KeeperReport(certificate_request=request, state=told, resident_id=resident)
    while True:
        await kept.changed.wait()
        kept.changed.clear()
        if (now := kept.state()) != told:
            told = now
            yield pb.KeeperReport(state=now)
