"""Connections to permitted addresses alone.

The address that was checked is the one that is connected to, so that a name cannot lead
elsewhere a moment later. No proxy of the environment is used, since it would resolve names anew.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from windlass.core.outbound.addresses import OutboundAddresses

# Of their own, since a name server of a tenant's may be slow on purpose; and so few of a project,
# since nothing stops a thread that waits for one.
RESOLVER_THREADS = 32
PROJECT_LOOKUPS = 2
# Whose name is looked up; aiohttp tells its resolver nothing but the name.
_project = ContextVar("outbound_project", default="")


class NotPublic(OSError):
    """A name that resolves to no address that may be connected to."""


class OutboundConnections:
    """One session of HTTP for all requests, without cookies, decompression and proxies."""

    def __init__(
        self,
        addresses: OutboundAddresses,
        headers: Mapping[str, str],
        *,
        tls: ssl.SSLContext | None = None,
    ):
        """`tls` says whom to trust, by default what the system does."""
        self._addresses = addresses
        self._headers = dict(headers)
        self._tls = tls
        self._resolver = _Resolver(addresses)
        self._session: aiohttp.ClientSession | None = None

    async def stream(
        self, tenant: str, host: str, port: int, *, tls: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a permitted address of a host, by TLS for that name or without.

        Raises OSError.
        """
        token = _project.set(tenant)
        try:
            found = (await self._resolver.resolve(host, port))[0]
        finally:
            _project.reset(token)
        secured: dict[str, Any] = {}
        if tls:
            context = self._tls or await asyncio.to_thread(ssl.create_default_context)
            secured = {"ssl": context, "server_hostname": host}
        return await asyncio.open_connection(found["host"], port, **secured)

    @contextmanager
    def of(self, project_id: str) -> Iterator[aiohttp.ClientSession]:
        """The session, in whose requests within the block names are looked up for a project."""
        token = _project.set(project_id)
        try:
            yield self._opened()
        finally:
            _project.reset(token)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # `limit=0`: the caller bounds how much is sent at once.
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,
                socket_factory=self._socket,
                force_close=True,
                limit=0,
                ssl=self._tls or True,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                headers=self._headers,
            )
        return self._session

    def _socket(self, found: tuple[Any, ...]) -> socket.socket:
        """A socket for an address, which may not have come from the resolver."""
        family, kind, protocol, _, address = found
        if not self._addresses.permits(ip_address(address[0])):
            raise NotPublic
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """Ends what is under way."""
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()


def why_failed(error: Exception, url: str, seconds: float) -> str:
    """Returns what went wrong with a request to a URL, in words that a tenant may read."""
    host = urlsplit(url).hostname
    if isinstance(error, TimeoutError):
        return f"{host} did not respond within {seconds:.0f} seconds"
    if isinstance(getattr(error, "os_error", None), NotPublic):
        return f"{host} has no public address"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{host} cannot be resolved"
    if isinstance(error, (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError)):
        return f"{host} has no certificate that is trusted here"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{host} could not be connected to"
    return f"{host} did not respond with HTTP"


class _Resolver(AbstractResolver):
    """The system's, without the addresses that are not permitted; few lookups of a project."""

    def __init__(self, addresses: OutboundAddresses):
        self._addresses = addresses
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, "outbound names")
        # Kept by the lookups that have a turn, or wait for one.
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Every permitted address of a name; raises OSError."""
        found = await self._look_up(host, port, family)
        permitted = [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST,
            )
            for kind, _, protocol, _, address in found
            if self._addresses.permits(ip_address(address[0]))
        ]
        if not permitted:
            raise NotPublic
        return permitted

    async def _look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[Any]:
        project, loop = _project.get(), asyncio.get_running_loop()
        turn = self._turns.setdefault(project, asyncio.Semaphore(PROJECT_LOOKUPS))
        await turn.acquire()

        def release(_: Future[Any]) -> None:
            # Once the thread is free, however long ago its caller has left.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(turn.release)

        lookup = self._threads.submit(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        lookup.add_done_callback(release)
        return await asyncio.wrap_future(lookup)

    async def close(self) -> None:
        """Leaves threads that still wait for a name server behind."""
        self._threads.shutdown(wait=False, cancel_futures=True)
