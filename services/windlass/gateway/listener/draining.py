"""The planned stop of a gateway: open model requests end, new ones go elsewhere."""

import asyncio
import contextlib
from collections.abc import Iterator

from windlass.core import telemetry
from windlass.gateway.errors import HttpError

log = telemetry.logger("gateway")


class RequestDrain:
    """Counts open requests to models, and refuses new ones once it drains."""

    def __init__(self, seconds: float):
        """`seconds` is how long open requests may keep the gateway."""
        self._seconds = seconds
        self._open = 0
        self._is_draining = False
        self._ended = asyncio.Event()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts a request for the length of the block; raises HttpError 503 `draining`."""
        if self._is_draining:
            raise HttpError(
                503,
                "This server is about to stop; try again.",
                kind="service_unavailable_error",
                code="draining",
                # The next connection may lead to another replica.
                headers={"retry-after": "1", "connection": "close"},
            )
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._ended.set()

    async def drain(self) -> None:
        """Waits until no request is open, or until the time is up."""
        self._is_draining = True
        if not self._open:
            return
        log.info("gateway_draining", requests=self._open)
        self._ended.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._ended.wait()
        if self._open:
            log.warning("requests_cut", requests=self._open)
