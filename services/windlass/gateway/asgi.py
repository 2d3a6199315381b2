"""Raw ASGI helpers of the hot paths."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from windlass.gateway.errors import HttpError, too_large
from windlass.gateway.listener.joined_answer import REST

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
DRAIN_SECONDS = 5.0
# Of somebody unknown: what was on its way when the answer went out.
ANONYMOUS_DRAIN_SECONDS = 1.0
ANONYMOUS_DRAIN_BYTES = 256 * 1024
# Less than this comes with the head, or right after it.
SMALL_BODY_BYTES = 64 * 1024


class ClientLeft(Exception):
    """The client closed the connection before its request was answered."""


async def read_body(receive: Receive, headers: dict[bytes, bytes], limit: int) -> bytes:
    """The whole body; raises HttpError 413 beyond `limit` bytes, ClientLeft when cut off."""
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise too_large(limit)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientLeft
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        pieces, size = [body], len(body)
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                raise too_large(limit)
        body = b"".join(pieces)
    if len(body) > limit:
        raise too_large(limit)
    return body


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Sends one whole response."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def encoded(pairs: Iterable[tuple[str, str]]) -> Headers:
    """Header pairs as ASGI wants them."""
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs]


async def respond_error(
    send: Send, error: HttpError, extra: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """An error as the whole response; its connection then rests as long as it says."""
    if error.rest_seconds:
        await send({"type": REST, "seconds": error.rest_seconds})
    headers = [_media_type(error), *extra, *encoded(error.headers.items())]
    await respond(send, error.status, headers, error.body())


def _media_type(error: HttpError) -> tuple[bytes, bytes]:
    return (b"content-type", error.media_type.encode())


def has_large_body(headers: dict[bytes, bytes]) -> bool:
    """True if a request's body is larger than what arrives with its head, or of unknown length."""
    length = headers.get(b"content-length", b"0")
    if b"transfer-encoding" in headers or not length.isdigit():
        return True
    return len(length) > 9 or int(length) > SMALL_BODY_BYTES


async def refuse_upload(
    send: Send, receive: Receive, error: HttpError, *, anonymous: bool = False
) -> None:
    """Sends an error while the client is still uploading, and closes the connection.

    Some of the rest is read and dropped: a connection that is closed on a sender is reset,
    and the answer would be lost with it.
    """
    body = error.body()
    headers = [
        _media_type(error),
        (b"connection", b"close"),
        (b"content-length", b"%d" % len(body)),
    ]
    headers += encoded(error.headers.items())
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    seconds = ANONYMOUS_DRAIN_SECONDS if anonymous else DRAIN_SECONDS
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (message := await receive()).get("more_body"):
                dropped += len(message.get("body", b""))
                if anonymous and dropped > ANONYMOUS_DRAIN_BYTES:
                    break
    await send({"type": "http.response.body", "body": b""})
