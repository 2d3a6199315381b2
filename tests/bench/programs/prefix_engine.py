"""An engine that computes nothing and keeps prompts, as vLLM's prefix cache does. PORT as argument.

A word is a token. What a prompt has beyond messages that were asked before, with the same salt,
takes its time: one prompt after the other, 20,000 tokens a second. Then come the chunks, one each
10 ms, whatever other requests do, and the usage with the tokens that were kept. Nothing is
forgotten; answers are not kept.
"""

import asyncio
import json
import sys
from typing import Any

import httptools
import uvloop

TOKENS_PER_SECOND = 20_000
CHUNKS, PAUSE_SECONDS = 20, 0.01
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _frame(event: "dict[str, Any] | None") -> bytes:
    data = b"data: %b\n\n" % (json.dumps(event).encode() if event else b"[DONE]")
    return b"%x\r\n%b\r\n" % (len(data), data)


def _chunk(choices: "list[Any]", **fields: Any) -> bytes:
    kind = "chat.completion.chunk"
    return _frame(
        {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "prefix", "choices": choices}
        | fields
    )


_WORD = _chunk([{"index": 0, "delta": {"content": " word"}, "finish_reason": None}])


class PrefixCache:
    """Prompts that were asked, and when the last of them is done."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._free_at = 0.0

    def take(self, body: "dict[str, Any]", now: float) -> "tuple[int, int, float]":
        """The tokens of a prompt, those of them that are known, and when it is done."""
        tokens = cached = 0
        beginning = hash((body.get("cache_salt", ""),))
        for message in body["messages"]:
            beginning = hash((beginning, message["role"], message["content"]))
            tokens += len(message["content"].split())
            if beginning in self._known:
                cached = tokens
            self._known.add(beginning)
        begins = max(now, self._free_at)
        self._free_at = begins + (tokens - cached) / TOKENS_PER_SECOND
        return tokens, cached, self._free_at


class Engine(asyncio.Protocol):
    """One connection."""

    def __init__(self, cache: PrefixCache):
        self._cache = cache

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
            self._transport.write(_JSON)
            return
        tokens, cached, done = self._cache.take(json.loads(body), self._loop.time())
        self._transport.write(_HEAD)
        usage = {
            "prompt_tokens": tokens,
            "completion_tokens": CHUNKS,
            "total_tokens": tokens + CHUNKS,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        self._loop.call_at(done, self._next, usage, CHUNKS)

    def _next(self, usage: "dict[str, Any]", left: int) -> None:
        if self._transport.is_closing():
            return
        if left:
            self._transport.write(_WORD)
            self._loop.call_later(PAUSE_SECONDS, self._next, usage, left - 1)
        else:
            self._transport.write(_chunk([], usage=usage) + _frame(None) + b"0\r\n\r\n")


async def serve(port: int) -> None:
    """Serves for ever."""
    cache = PrefixCache()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Engine(cache), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
