"""An engine that never ends an answer, and knows when those left that asked. PORT as argument.

A stream has a chunk each 10 ms; what is not streamed has no byte. A GET answers with JSON: how many
requests were `asked`, and when (`time.monotonic()`, the machine's) the connections of some `left`.
"""

import asyncio
import json
import sys
import time
from typing import Any

import httptools
import uvloop

PAUSE_SECONDS = 0.01
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"endless","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}\n\n'
)
_FRAME = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)


class Engine(asyncio.Protocol):
    """One connection."""

    asked = 0
    left: "list[float]" = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._answers = False

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if not body:
            said = json.dumps({"asked": Engine.asked, "left": Engine.left}).encode()
            self._transport.write(_JSON % (len(said), said))
            return
        Engine.asked += 1
        self._answers = True
        if b'"stream":true' in body or b'"stream": true' in body:
            self._transport.write(_HEAD)
            self._go_on()

    def connection_lost(self, error: "Exception | None") -> None:
        if self._answers:
            Engine.left.append(time.monotonic())
            self._answers = False

    def _go_on(self) -> None:
        if self._answers and not self._transport.is_closing():
            self._transport.write(_FRAME)
            asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._go_on)


async def serve(port: int) -> None:
    """Serves for ever."""
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
