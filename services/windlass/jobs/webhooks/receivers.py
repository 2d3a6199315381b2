"""Sends to addresses that tenants chose: one request, one status, and nothing else of the answer.

The address that was checked is the one that is connected to, so that a name cannot lead
elsewhere a moment later. No proxy of the environment is used, since it would resolve names anew,
and no redirect is followed.
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from windlass.core.errors import InvalidArgument
from windlass.jobs.webhooks.addresses import AddressRules

# For everything: name, connection, TLS, request and status.
SECONDS = 10.0
# Of their own, since a name server of a tenant's may be slow on purpose; and so few of a project,
# since nothing stops a thread that waits for one.
RESOLVER_THREADS = 32
PROJECT_LOOKUPS = 2
# Whose name is looked up; aiohttp tells its resolver nothing but the name.
_project = ContextVar("webhook_project", default="")


class Unreachable(Exception):
    """No HTTP response; the text says why, in words that a tenant may read."""


class _NotPublic(OSError):
    """A name that resolves to no address that may be connected to."""


class _Resolver(AbstractResolver):
    """The system's, without the addresses that are not permitted; few lookups of a project."""

    def __init__(self, rules: AddressRules):
        self._rules = rules
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, "webhook names")
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
            if self._rules.permits(ip_address(address[0]))
        ]
        if not permitted:
            raise _NotPublic
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


class Receivers:
    """Posts to URLs that the rules admit."""

    def __init__(self, rules: AddressRules):
        self._rules = rules
        self._resolver = _Resolver(rules)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, project_id: str, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status of the answer, whose body is not read; raises Unreachable."""
        whose = _project.set(project_id)
        try:
            # Once more: the operator's mind may have changed since the webhook was made.
            self._rules.admit(url)
            async with (
                asyncio.timeout(SECONDS),
                self._opened().post(
                    url, data=body, headers=headers, allow_redirects=False
                ) as answer,
            ):
                return answer.status
        except InvalidArgument as error:
            raise Unreachable("the URL is not allowed here") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(_why(error, url)) from error
        finally:
            _project.reset(whose)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # `limit=0`: the caller bounds how much is sent at once.
            connector = aiohttp.TCPConnector(
                resolver=self._resolver,
                use_dns_cache=False,
                socket_factory=self._socket,
                force_close=True,
                limit=0,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                headers={"User-Agent": "Windlass-Webhooks", "Content-Type": "application/json"},
            )
        return self._session

    def _socket(self, found: tuple[Any, ...]) -> socket.socket:
        """A socket for an address, which may not have come from the resolver."""
        family, kind, protocol, _, address = found
        if not self._rules.permits(ip_address(address[0])):
            raise _NotPublic
        return socket.socket(family, kind, protocol)

    async def close(self) -> None:
        """Ends what is under way."""
        if self._session is not None:
            await self._session.close()
        await self._resolver.close()


def _why(error: Exception, url: str) -> str:
    host = urlsplit(url).hostname
    if isinstance(error, TimeoutError):
        return f"{host} did not respond within {SECONDS:.0f} seconds"
    if isinstance(getattr(error, "os_error", None), _NotPublic):
        return f"{host} has no public address"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"{host} cannot be resolved"
    if isinstance(error, (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError)):
        return f"{host} has no certificate that is trusted here"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{host} could not be connected to"
    return f"{host} did not respond with HTTP"
