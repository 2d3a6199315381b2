"""Serves the signed URLs of a store: GET with ranges, and PUT."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, closing
from typing import Any
from urllib.parse import parse_qsl, quote

from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.core.objects.port import (
    InvalidKey,
    ObjectDamaged,
    ObjectMismatch,
    ObjectNotFound,
    ObjectStoreError,
    ObjectTooLarge,
    SealingKeyUnavailable,
    SignatureInvalid,
    StorageFull,
    StoreUnavailable,
)
from windlass.core.objects.served import ServedStore
from windlass.core.objects.signing import SignedRequest

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Hold = Callable[[str], Awaitable[None]]
Header = tuple[bytes, bytes]

log = telemetry.logger("objects")
# No object has more bytes than 18 digits name.
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_STATUS: dict[type[ObjectStoreError], int] = {
    SignatureInvalid: 403,
    ObjectNotFound: 404,
    ObjectMismatch: 400,
    InvalidKey: 400,
    ObjectTooLarge: 413,
    StoreUnavailable: 503,
    StorageFull: 507,
    SealingKeyUnavailable: 503,
    ObjectDamaged: 409,
}


class ClientGone(Exception):
    """The other side has closed the connection."""


class TransferBroken(Exception):
    """An object could not be read to its end; half of it is out, so the connection ends."""


class ObjectRoutes:
    """An ASGI application for every path with /objects/<key>."""

    def __init__(self, store: ServedStore):
        self._store = store

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send, hold: Hold | None = None
    ) -> None:
        """Handles one request; failures before the first byte are JSON in OpenAI's shape.

        Raises TransferBroken for later ones.

        `hold` is asked first whether the holder of the URL may still have it.
        """
        try:
            await self._answer(scope, receive, send, hold)
        except ObjectStoreError as error:
            status = _STATUS.get(type(error), 500)
            if status >= 500:
                log.error("object_transfer_failed", path=scope["path"], exc_info=error)
            await _send_error(send, status, error)
        except ClientGone:
            log.info("client_disconnected", path=scope["path"])

    async def _answer(self, scope: Scope, receive: Receive, send: Send, hold: Hold | None) -> None:
        key = scope["path"].partition("/objects/")[2]
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        request = self._store.verify(scope["method"], key, dict(pairs))
        if request.holder and hold is not None:
            await hold(request.holder)
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if request.method == "PUT":
            await self._put(request, headers, receive, send)
        else:
            await self._get(request, headers, scope["method"] == "HEAD", receive, send)

    async def _put(
        self, request: SignedRequest, headers: dict[bytes, str], receive: Receive, send: Send
    ) -> None:
        length = headers.get(b"content-length")
        if request.bytes is not None and length not in (None, str(request.bytes)):
            raise ObjectMismatch(f"{length} bytes were sent, but {request.bytes} were announced.")
        stored = await self._store.take(request, _body(receive))
        etag = b'"' + stored.sha256.hex().encode() + b'"'
        await _start(send, 200, [(b"content-length", b"0"), (b"etag", etag)])
        await send({"type": "http.response.body", "body": b""})

    async def _get(
        self,
        request: SignedRequest,
        headers: dict[bytes, str],
        head: bool,
        receive: Receive,
        send: Send,
    ) -> None:
        with closing(await self._store.give(request)) as opened:
            status, start, stop, answer = _choose_range(headers.get(b"range"), opened.size)
            answer += _content_headers(request, stop - start)
            async with aclosing(opened.read(start, start if head else stop)) as chunks:
                # What cannot be read at all is told, while a status can still say so.
                first = await anext(chunks, b"")
                await _start(send, status, answer)
                await send({"type": "http.response.body", "body": first, "more_body": True})
                await _send_chunks(chunks, receive, send)
        await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


async def _send_chunks(chunks: AsyncIterator[bytes], receive: Receive, send: Send) -> None:
    # A server takes what is sent to a closed connection in silence, so we listen for its end.
    left = asyncio.create_task(_left(receive))
    try:
        async for chunk in chunks:
            if left.done():
                raise ClientGone
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except ObjectStoreError as error:
        raise TransferBroken(str(error)) from error
    finally:
        left.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _choose_range(value: str | None, size: int) -> tuple[int, int, int, list[Header]]:
    """Status, start, stop and headers; a range that we do not know is ignored, as RFC 9110 asks."""
    found = _RANGE.fullmatch(value or "")
    if found is None or not any(found.groups()):
        return 200, 0, size, []
    first, last = found.groups()
    if first:
        start, stop = int(first), min(int(last) + 1 if last else size, size)
    else:
        start, stop = max(size - int(last), 0), size
    if start >= size or (last and first and int(last) < int(first)):
        return 416, 0, 0, [(b"content-range", b"bytes */%d" % size)]
    return 206, start, stop, [(b"content-range", b"bytes %d-%d/%d" % (start, stop - 1, size))]


def _content_headers(request: SignedRequest, length: int) -> list[Header]:
    disposition = "attachment"
    if request.filename is not None:
        disposition += f"; filename*=UTF-8''{quote(request.filename, safe='')}"
    return [
        (b"content-type", b"application/octet-stream"),
        (b"content-length", b"%d" % length),
        (b"accept-ranges", b"bytes"),
        (b"content-disposition", disposition.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"private, no-store"),
    ]


async def _start(send: Send, status: int, headers: list[Header]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _send_error(send: Send, status: int, error: ObjectStoreError) -> None:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    code = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()
    if isinstance(error, AppError):
        code = error.reason
    shape = {"message": str(error), "type": kind, "param": None, "code": code}
    body = json.dumps({"error": shape}).encode()
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await _start(send, status, headers)
    await send({"type": "http.response.body", "body": body})
