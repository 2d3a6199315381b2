"""An engine that computes nothing: OpenAI's wire on a bare asyncio protocol.

PORT, and milliseconds between the chunks of a stream: 10 by default. The first comes at once. They
are as many as `max_completion_tokens` says, else 100, each with the usage if it is asked for.
"""

import asyncio
import random
import re
import sys
from typing import Any

import httptools
import uvloop

CHUNKS = 100
PAUSE_SECONDS = 0.01
_ASKED = re.compile(rb'"max_completion_tokens": ?(\d+)')
_USAGE = b'"usage":{"prompt_tokens":9,"completion_tokens":100,"total_tokens":109}'
_BODY = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"null",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"Hello, this is an answer."},'
    b'"finish_reason":"stop"}],' + _USAGE + b"}"
)
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
WHOLE = _JSON % (len(_BODY), _BODY)
_MODELS = b'{"object":"list","data":[]}'
_LIST = _JSON % (len(_MODELS), _MODELS)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _frame(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(usage: bytes) -> bytes:
    return _frame(
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,'
        b'"model":"null","choices":[{"index":0,"delta":{"content":" word"},'
        b'"finish_reason":null}]' + usage + b"}\n\n"
    )


_PLAIN = _event(b"")
_COUNTED = _event(b"," + _USAGE)
_LAST = _frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Engine(asyncio.Protocol):
    """One connection."""

    def __init__(self, pause: float):
        self._pause = pause

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if not body:
            self._transport.write(_LIST)
        elif b'"stream":true' in body or b'"stream": true' in body:
            event = _COUNTED if b"continuous_usage_stats" in body else _PLAIN
            asked = _ASKED.search(body)
            left = int(asked[1]) - 1 if asked else CHUNKS - 1
            self._transport.write(_HEAD + event)
            # Streams that began together must not stay in step.
            self._loop.call_later(random.random() * self._pause, self._next, event, left)
        else:
            self._transport.write(WHOLE)

    def _next(self, event: bytes, left: int) -> None:
        if self._transport.is_closing():
            return
        if not left:
            self._transport.write(_LAST)
            return
        self._transport.write(event)
        self._loop.call_later(self._pause, self._next, event, left - 1)


async def serve(port: int, milliseconds: str = "") -> None:
    """Serves for ever."""
    pause = float(milliseconds) / 1000 if milliseconds else PAUSE_SECONDS
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Engine(pause), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), *sys.argv[2:]))
