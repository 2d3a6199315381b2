"""Requests to the Kubernetes API, and the errors that they end with."""

import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec

from windlass_agent.kube.access import Access, NoAccess
from windlass_agent.kube.errors import ApiServerUnavailable, Object, error_of_answer

T = TypeVar("T")
Value = str | int | bool | None
# A list is a JSON patch.
Body = Object | list[Object]
CALL = aiohttp.ClientTimeout(total=30, sock_connect=10)
# A log lasts; that the other side is gone is seen by keepalive.
LOG = aiohttp.ClientTimeout(total=None, sock_connect=10)
# So does a watch, but with a bookmark each minute.
WATCH = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=150)


class Transport:
    """One session with a cluster's API. Raises KubeError."""

    def __init__(self, access: Access, fields: Mapping[str, str], user_agent: str) -> None:
        self._access = access
        self._fields = dict(fields)
        self._server_name = access.server_name or None
        connector = aiohttp.TCPConnector(
            ssl=access.tls if access.tls is not None else True,
            limit=0,
            socket_factory=_socket,
        )
        # Compressing costs both sides more than a cluster's network does.
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"Accept-Encoding": "identity", "User-Agent": user_agent},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Ends every call."""
        await self._session.close()

    async def content(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Value] | None = None,
        body: Body | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """A whole answer."""
        request = self.request(
            method, path, query=query or {}, body=body, content_type=content_type
        )
        async with request as answer:
            try:
                return await answer.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise _unreachable(error) from error

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Value],
        body: Body | None = None,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout = CALL,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer as it comes; query parameters that are None or False are left out."""
        fields = dict(self._fields)
        if body is not None:
            fields["Content-Type"] = content_type
        try:
            if authorization := await self._access.authorization():
                fields["Authorization"] = authorization
            answer = await self._session.request(
                method,
                self._access.url + path,
                params=_params(query),
                data=None if body is None else msgspec.json.encode(body),
                headers=fields,
                timeout=timeout,
                server_hostname=self._server_name,
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, NoAccess) as error:
            raise _unreachable(error) from error
        async with answer:
            if answer.status >= 300:
                raise await _refusal(answer)
            yield answer


def decoded(content: bytes, kind: type[T]) -> T:
    """The JSON of an answer."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise _unreachable(error) from error


async def _refusal(answer: aiohttp.ClientResponse) -> Exception:
    try:
        content = await answer.read()
    except (aiohttp.ClientError, OSError, TimeoutError):
        content = b""
    return error_of_answer(answer.status, content)


def _unreachable(error: BaseException) -> ApiServerUnavailable:
    said = str(error) or type(error).__name__
    return ApiServerUnavailable(0, "Unreachable", f"the Kubernetes API does not answer: {said}")


def _params(query: Mapping[str, Value]) -> dict[str, str]:
    return {
        name: "true" if value is True else str(value)
        for name, value in query.items()
        if value is not None and value is not False
    }


def _socket(address: Any) -> socket.socket:
    """A socket that notices within half a minute that the other side is gone."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
    return opened
