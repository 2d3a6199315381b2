"""An engine's routes at a socket of ours, behind which a serving stack answers."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp
from aiohttp import web

from windlass.core.telemetry import logger, request_id
from windlass.inference_api.errors import ApiError
from windlass.inference_api.routes import CHAT, COMPLETIONS, EMBEDDINGS, RERANK, SCORE
from windlass_agent.engines.adopted.stack import SentBody, StackClient
from windlass_agent.engines.adopted.translation import (
    ModelNames,
    StackAnswer,
    StackFailed,
    body_for_stack,
    refusal,
)
from windlass_agent.engines.boundary import END, MAX_BODY_BYTES, boundary, event_stream

PASSED = (CHAT, COMPLETIONS, EMBEDDINGS, RERANK, SCORE)
# Of one event, and of an answer that is not streamed.
MAX_EVENT_BYTES = 2**20
MAX_ANSWER_BYTES = 32 * 2**20
# Of bodies and answers of all requests, for an agent that has little memory.
MAX_HELD_BYTES = 64 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
# For those that leave; drained before.
_SHUTDOWN_SECONDS = 0.1
_log = logger("adopted")


class HeldBytes:
    """Bytes that all forwarders of an agent hold, within their bound, and half of it for each."""

    def __init__(self) -> None:
        self._held = 0
        self._of = Counter[str]()

    @contextlib.contextmanager
    def holding(self, model: str) -> Iterator[Callable[[int], None]]:
        """Yields what counts more bytes of a model, or fewer, until the end of the block.

        That raises ApiError where they are too many.
        """
        own, ended = 0, False

        def hold(size: int) -> None:
            nonlocal own
            if ended:
                # Of a body that is sent to its end after the stack has refused it.
                return
            full = self._held + size > MAX_HELD_BYTES
            if size > 0 and (full or self._of[model] + size > MAX_HELD_BYTES // 2):
                raise ApiError(
                    "Too many large requests go to serving stacks at once; try again.",
                    status=503,
                    code="engine_overloaded",
                )
            own += size
            self._held += size
            self._of[model] += size

        try:
            yield hold
        finally:
            ended = True
            self._held -= own
            self._of[model] -= own
            if not self._of[model]:
                del self._of[model]


class Forwarder:
    """Takes requests at a Unix socket, and passes them on to the stack that is `stack` then."""

    def __init__(self, stack: StackClient, model: str, socket: Path, held: HeldBytes):
        self.stack = stack
        self._held = held
        self._model = model
        self._socket = socket
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._runner = web.AppRunner(
            self._app(),
            handler_cancellation=True,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            access_log=None,
        )

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[boundary], client_max_size=MAX_BODY_BYTES)
        app.add_routes([web.post(path, self._forward) for path in PASSED])
        return app

    async def start(self) -> None:
        """Listens; raises OSError."""
        self._socket.unlink(missing_ok=True)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self._socket)).start()

    async def drain(self, seconds: float) -> None:
        """Returns once no request is open, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def close(self) -> None:
        """Ends every request, and stops listening."""
        await self._runner.cleanup()
        self._socket.unlink(missing_ok=True)
        await self.stack.close()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self._open += 1
        self._idle.clear()
        try:
            return await self._answer(request)
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        with self._held.holding(str(self._socket)) as hold:
            body = await _body(request, hold)
            # After the body, so that nothing comes between the stack and its use.
            stack = self.stack
            names = ModelNames(ours=self._model, theirs=stack.spec.model, key=stack.spec.key)
            size = len(body)
            answer = StackAnswer(names=names, dialect=stack.spec.dialect, body_bytes=size)
            body = body_for_stack(body, names, dialect=stack.spec.dialect)
            sending = SentBody(body, lambda: hold(-size))
            # Kept by what sends it alone, until it is sent: an answer may take long.
            del body
            try:
                async with stack.post(request.path, sending, request_id.get()) as response:
                    await _require_good(response, names)
                    if response.content_type != "text/event-stream":
                        return _json(answer.whole(await _read(response, MAX_ANSWER_BYTES, hold)))
                    return await event_stream(request, _events(response.content, answer))
            except (aiohttp.ClientError, TimeoutError) as error:
                _log.warning("stack_unreachable", model=self._model, reason=repr(error))
                raise ApiError(
                    "The serving stack does not answer.", status=503, code="stack_unavailable"
                ) from error


async def _body(request: web.Request, hold: Callable[[int], None]) -> bytes:
    """The body; raises ApiError for one that is too long.

    Not by `Request.read`, which keeps it for as long as the request lives.
    """
    body = bytearray()
    async for part in request.content.iter_any():
        hold(len(part))
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise ApiError(
                f"The body has more than {MAX_BODY_BYTES} bytes.",
                status=413,
                code="request_too_large",
            )
    return bytes(body)


def _json(content: bytes) -> web.Response:
    return web.Response(body=content, content_type="application/json")


async def _require_good(response: aiohttp.ClientResponse, names: ModelNames) -> None:
    """Raises ApiError unless the stack answers with what was asked for."""
    if response.ok and response.status < 300:
        return
    if response.status < 400:
        raise ApiError(
            "The serving stack sent the request elsewhere.", status=502, code="engine_failed"
        )
    if response.status in (401, 403):
        _log.error("stack_refused_key", model=names.ours, status=response.status)
    content = await _read(response, MAX_ERROR_BYTES)
    if response.status >= 500:
        _log.error(
            "stack_failed", model=names.ours, status=response.status, body=names.log(content)
        )
    raise refusal(content, response.status, names)


async def _read(
    response: aiohttp.ClientResponse, most: int, hold: Callable[[int], None] | None = None
) -> bytes:
    """The answer; raises ApiError for one that is longer than `most` bytes."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        if hold is not None:
            hold(len(part))
        parts.append(part)
        size += len(part)
        if size > most:
            raise ApiError(
                "The serving stack's answer is too long.", status=502, code="engine_failed"
            )
    return b"".join(parts)


async def _events(stream: aiohttp.StreamReader, answer: StackAnswer) -> AsyncIterator[bytes]:
    """Yields server-sent events; raises ApiError for a stream that fails or breaks off."""
    try:
        async for event in _split(stream):
            # Lines of JSON end between its tokens; in one line it is one event still.
            data = b" ".join(
                line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")
            )
            if not data:
                # A comment, which keeps connections open; what it says is the stack's affair.
                yield b":\n\n"
            elif data == b"[DONE]":
                if counted := answer.closing():
                    yield b"data: " + counted + b"\n\n"
                yield END
                return
            else:
                yield b"data: " + answer.chunk(data) + b"\n\n"
    except StackFailed as error:
        _log.error("stack_failed", model=answer.names.ours, body=answer.names.log(error.said))
        raise ApiError("The serving stack failed.", status=502, code="engine_failed") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        _log.warning("stack_broke_off", model=answer.names.ours, reason=repr(error))
    raise ApiError("The serving stack broke off.", status=502, code="engine_failed")


async def _split(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yields events without the blank line that ends each; raises ApiError for one too long."""
    rest, carried = bytearray(), b""
    async for part in stream.iter_any():
        part = carried + part
        carried = b"\r" if part.endswith(b"\r") else b""
        part = part.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        # An end may have begun in the part before.
        at = max(0, len(rest) - 1)
        rest += part
        while (end := rest.find(b"\n\n", at)) >= 0:
            event = bytes(rest[:end])
            del rest[: end + 2]
            at = 0
            if event.strip():
                yield event
        if len(rest) > MAX_EVENT_BYTES:
            raise ApiError(
                "The serving stack's answer is too long.", status=502, code="engine_failed"
            )
