"""The first pod of an engine on several nodes, as the keepers of its other pods see it."""

import asyncio

import aiohttp

from windlass.core.telemetry import logger
from windlass_agent.keeper.health import DRAINED

# Its name may be gone before its pod, so its address is looked up beforehand.
FOLLOW_SECONDS = 2.0
_CONNECT_SECONDS = 5.0

_log = logger("keeper")


class Leader:
    """The pod that has the door. `port` is where its keeper answers probes."""

    def __init__(self, host: str, port: int):
        self._host = host
        self._port = port
        self._address = ""

    async def follow(self) -> None:
        """Keeps its address in mind until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await loop.getaddrinfo(self._host, self._port)
                self._address = str(found[0][4][0])
            except OSError as error:
                _log.debug("leader_not_found", host=self._host, error=str(error))
            await asyncio.sleep(FOLLOW_SECONDS)

    async def drained(self) -> None:
        """Returns once it has no open request, or cannot be asked."""
        host = f"[{self._address}]" if ":" in self._address else self._address
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"http://{host}:{self._port}{DRAINED}") as answer,
            ):
                await answer.read()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            _log.info("leader_away", error=str(error))
