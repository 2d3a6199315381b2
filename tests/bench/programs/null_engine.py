"""An engine that computes nothing: OpenAI's wire on a bare asyncio protocol. PORT as argument.

A stream has 100 chunks, one each 10 ms, with the usage in each chunk when it is asked for.
"""

import asyncio
import random
import sys
from typing import Any

import httptools
import uvloop

CHUNKS = 100
PAUSE_SECONDS = 0.01
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
            self._transport.write(_HEAD)
            # Streams that began together must not stay in step.
            self._loop.call_later(random.random() * PAUSE_SECONDS, self._next, event, CHUNKS)
        else:
            self._transport.write(WHOLE)

    def _next(self, event: bytes, left: int) -> None:
        if self._transport.is_closing():
            return
        if not left:
            self._transport.write(_LAST)
            return
        self._transport.write(event)
        self._loop.call_later(PAUSE_SECONDS, self._next, event, left - 1)


async def serve(port: int) -> None:
    """Serves for ever."""
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
