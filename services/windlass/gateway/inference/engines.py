"""Connections to engines: pooled by address, the least busy first, another try when one is gone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from windlass.core import telemetry
from windlass.gateway.errors import HttpError
from windlass.gateway.inference.routes import Endpoint

log = telemetry.logger("gateway.engines")
CONNECT_SECONDS = 2.0
POOLS = 256
ERROR_BYTES = 1 << 20

# No bound on silence: an engine may compute for long, the end of its process closes the
# socket, TCP's keep-alive finds a dead host, and a timer per chunk is not free.
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
_SKIP = ("User-Agent", "Accept", "Accept-Encoding")


@dataclass(slots=True)
class Pool:
    """The connections to one address."""

    session: aiohttp.ClientSession
    base: str
    urls: dict[str, URL]
    active: int = 0

    def url(self, path: str) -> URL:
        """The URL of a path, parsed once."""
        found = self.urls.get(path)
        if found is None:
            found = self.urls[path] = URL(self.base + path)
        return found


class Engines:
    """Opens exchanges with engines."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}

    async def open(
        self, endpoints: Sequence[Endpoint], path: str, body: bytes, request_id: str
    ) -> tuple[aiohttp.ClientResponse, Pool]:
        """Sends a request; answers with its status and headers read.

        The caller closes the response and lowers `active` of the pool. Raises
        HttpError 503 when no engine takes it.
        """
        tried: set[str] = set()
        for attempt in range(3):
            pool, address = await self._pick(endpoints, tried)
            pool.active += 1
            try:
                response = await pool.session.request(
                    "POST",
                    pool.url(path),
                    data=body,
                    headers={"content-type": "application/json", "x-request-id": request_id},
                )
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                pool.active -= 1
                # A pooled connection may have been closed just now: the same engine is
                # worth one more try, but one that refuses connections is not.
                if attempt or isinstance(error, aiohttp.ClientConnectorError | TimeoutError):
                    tried.add(address)
                log.warning("engine did not answer", engine=address, error=repr(error))
                if isinstance(error, TimeoutError) or tried >= {e.address for e in endpoints}:
                    break
                continue
            except BaseException:
                pool.active -= 1
                raise
            if response.status != 404 or attempt == 2:
                return response, pool
            # It has unloaded the model since the last news of it.
            response.close()
            pool.active -= 1
            tried.add(address)
            if tried >= {endpoint.address for endpoint in endpoints}:
                break
        raise HttpError(
            503,
            "No engine of this model answers now; try again.",
            kind="service_unavailable_error",
            code="model_not_ready",
            param="model",
            headers={"retry-after": "1"},
        )

    async def _pick(self, endpoints: Sequence[Endpoint], tried: set[str]) -> tuple[Pool, str]:
        best: tuple[Pool, str] | None = None
        start = random.randrange(len(endpoints)) if len(endpoints) > 1 else 0  # noqa: S311
        for endpoint in (*endpoints[start:], *endpoints[:start]):
            if endpoint.address in tried:
                continue
            pool = self._pools.get(endpoint.address) or await self._connect(endpoint.address)
            if best is None or pool.active < best[0].active:
                best = (pool, endpoint.address)
        if best is None:
            raise AssertionError("a caller stops when every endpoint was tried")
        return best

    async def _connect(self, address: str) -> Pool:
        options: dict[str, Any] = {"limit": 0, "keepalive_timeout": 30}
        if address.startswith("unix:"):
            path = address.removeprefix("unix:")
            path = "/" + path.lstrip("/")
            connector: aiohttp.BaseConnector = aiohttp.UnixConnector(path, **options)
            base = "http://engine"
        else:
            connector = aiohttp.TCPConnector(**options)
            base = address.rstrip("/")
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_SKIP,
            auto_decompress=False,
            trust_env=False,
        )
        pool = self._pools[address] = Pool(session, base, {})
        await self._drop_idle()
        return pool

    async def _drop_idle(self) -> None:
        """Engines come and go under new addresses: forgets the oldest that do nothing."""
        for address in list(self._pools)[: max(0, len(self._pools) - POOLS)]:
            if not self._pools[address].active:
                await self._pools.pop(address).session.close()

    async def close(self) -> None:
        """Closes every connection."""
        for pool in self._pools.values():
            await pool.session.close()
