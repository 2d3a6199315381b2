"""Fetches of images by URL, from hosts that the operator lists and from nowhere else."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from ssl import SSLContext
from urllib.parse import urljoin
from weakref import WeakValueDictionary

import aiohttp
from yarl import URL

from windlass.core.addresses import Network
from windlass.core.outbound.addresses import OutboundAddresses, UrlRefused, checked_url
from windlass.core.outbound.connections import OutboundConnections, why_failed
from windlass.inference_api.images.parts import IMAGE_URL_LENGTH

# For names, connections, redirects and bytes; and before these for a turn.
SECONDS = TURN_SECONDS = 10.0
# At once, each with its bytes in memory: of all, of a project, and of a host, which may be slow.
FETCHES, PROJECT_FETCHES, HOST_FETCHES = 32, 8, 16
REDIRECTS = 3
_HTTPS = 443
_PART_BYTES = 2**16
_MOVED = (301, 302, 303, 307, 308)


class NotFetched(Exception):
    """No image from a URL; the text says why, in words that a tenant may read."""


class NoTurn(Exception):
    """Others fetch so much that this one had no turn in time."""


class HostNotListed(NotFetched):
    """A host of a URL, or of a redirect, that the operator has not listed."""


class ImageFetcher:
    """Fetches from listed hosts: `host`, or `host:port` for other ports than 443."""

    def __init__(
        self, hosts: Collection[str], networks: Sequence[Network], *, tls: SSLContext | None = None
    ):
        """`networks` may be connected to beside public addresses; `tls` says whom to trust."""
        self._hosts = frozenset(hosts)
        self._connections = OutboundConnections(
            OutboundAddresses(networks),
            {"User-Agent": "Windlass-Images", "Accept": "image/*", "Accept-Encoding": "identity"},
            tls=tls,
        )
        self._all = asyncio.Semaphore(FETCHES)
        # Kept by the fetches that have a turn, or wait for one.
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def admit(self, url: str) -> URL:
        """The URL as it is sent, if it is of a listed host; raises NotFetched."""
        try:
            parts = checked_url(url, schemes=("https",), length=IMAGE_URL_LENGTH)
            # Signed ones hold for their very bytes.
            sent = URL(url, encoded=True)
        except UrlRefused as error:
            raise NotFetched(f"the URL {error}") from error
        except ValueError as error:
            raise NotFetched("the URL cannot be read") from error
        host, port = parts.hostname or "", parts.port or _HTTPS
        if (sent.scheme, sent.host, sent.port) != ("https", host, port):
            # What is checked is what the client connects to.
            raise NotFetched("the URL can be read in two ways")
        # One without a port stands for that of https.
        named = {f"{host}:{port}", *([host] if port == _HTTPS else [])}
        if not named & self._hosts:
            raise HostNotListed(
                f"images are fetched from listed hosts alone, and {parts.netloc} is none; an "
                "operator can list it in inference.media_hosts"
            )
        return sent

    async def fetch(self, project_id: str, url: str, most: int) -> bytes:
        """The bytes at a URL, `most` at most; raises NotFetched, and NoTurn."""
        target = self.admit(url)
        async with self._turn(project_id, target.host or ""):
            return await self._fetch(project_id, url, target, most)

    @asynccontextmanager
    async def _turn(self, project_id: str, host: str) -> AsyncIterator[None]:
        """Waits for a turn of the project, of the host and of all; raises NoTurn."""
        own = self._turns.setdefault(f"project {project_id}", asyncio.Semaphore(PROJECT_FETCHES))
        there = self._turns.setdefault(f"host {host}", asyncio.Semaphore(HOST_FETCHES))
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    for one in (own, there, self._all):
                        await stack.enter_async_context(one)
            except TimeoutError as error:
                raise NoTurn from error
            yield

    async def _fetch(self, project_id: str, url: str, target: URL, most: int) -> bytes:
        try:
            async with asyncio.timeout(SECONDS):
                for _ in range(REDIRECTS + 1):
                    found = await self._get(project_id, target, most)
                    if isinstance(found, bytes):
                        return found
                    url = urljoin(url, found)
                    # Of the same list, whoever sent it.
                    target = self.admit(url)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NotFetched(why_failed(error, url, SECONDS)) from error
        raise NotFetched(f"the URL is redirected more than {REDIRECTS} times")

    async def _get(self, project_id: str, url: URL, most: int) -> bytes | str:
        """The bytes at a URL, or the URL that it is redirected to."""
        with self._connections.of(project_id) as session:
            async with session.get(url, allow_redirects=False) as answer:
                if answer.status in _MOVED and (location := answer.headers.get("Location")):
                    return location
                if answer.status != HTTPStatus.OK:
                    raise NotFetched(f"its host answered with the status {answer.status}")
                if answer.headers.get("Content-Encoding", "identity") != "identity":
                    raise NotFetched("its host sent it compressed, though nobody asked for that")
                found = bytearray()
                async for part in answer.content.iter_chunked(_PART_BYTES):
                    found += part
                    if len(found) > most:
                        raise NotFetched(f"it has more than {most} bytes")
                return bytes(found)

    async def close(self) -> None:
        """Ends what is under way."""
        await self._connections.close()
