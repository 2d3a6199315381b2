"""Tells the control plane who signs the tokens of the cluster's service accounts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import msgspec

from windlass.core import telemetry
from windlass_agent.kube import KubeError

# Kubernetes' own keys change rarely, and a new one is there before it signs.
LOOK_SECONDS = 300.0
METADATA, JWKS = "/.well-known/openid-configuration", "/openid/v1/jwks"

log = telemetry.logger("inventory")
# The JSON at a path of the cluster's API.
Get = Callable[[str], Awaitable[dict[str, Any]]]


class IssuerReport:
    """Reports the issuer of the cluster and its public keys, at first and when they change.

    Where the cluster shows them to nobody, its pods have no tokens that count.
    """

    def __init__(self, get: Get, report: Callable[[str, str], Awaitable[None]]):
        self._get = get
        self._report = report
        self._told = ("", "")

    async def run(self, session_id: str) -> None:
        """Looks and reports until cancelled."""
        # Another control plane may not have heard of it.
        self._told = ("", "")
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Reports what differs from what was told; a failure is left to the next look."""
        try:
            metadata = await self._get(METADATA)
            keys = await self._get(JWKS)
            found = (str(metadata.get("issuer", "")), msgspec.json.encode(keys).decode())
            if found != self._told:
                await self._report(*found)
                self._told = found
        except KubeError as error:
            log.info("issuer_not_read", error=error.message)
        except grpc.aio.AioRpcError as error:
            log.info("issuer_not_reported", code=error.code().name, details=error.details())
