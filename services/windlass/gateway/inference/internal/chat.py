"""Chat completions that the gateway requests itself, on behalf of a caller.

They take the token path as the caller's own requests do: with its permissions, within its
limits, and counted as its usage.
"""

import asyncio
import json
from typing import Any

import msgspec
from msgspec import Struct

from windlass.core.rpc.auth import Principal
from windlass.gateway.asgi import Message, Scope
from windlass.gateway.errors import HttpError
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.handler import InferenceHandler

PATH = "/v1/chat/completions"


class ChatMessage(Struct):
    """A model's answer."""

    content: str | None = None
    refusal: str | None = None


class Choice(Struct):
    """One answer of several; of ours there is one."""

    message: ChatMessage


class Used(Struct):
    """The tokens of a chat completion."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class Completion(Struct):
    """Fields read of a chat completion."""

    choices: list[Choice]
    usage: Used | None = None

    @property
    def message(self) -> ChatMessage:
        """Returns the first answer."""
        return self.choices[0].message if self.choices else ChatMessage()


_completion = msgspec.json.Decoder(Completion)


class InternalChat:
    """Requests chat completions on behalf of callers."""

    def __init__(self, inference: InferenceHandler, *, seconds: float):
        self._inference = inference
        self._seconds = seconds

    async def complete(
        self, caller: Principal, request_id: str, body: dict[str, Any]
    ) -> Completion:
        """The answer to a chat completion's body, of which nothing is streamed.

        Raises what such a request is refused with, and HttpError 504 when time is up.
        """
        inner = InnerRequest(PATH, caller, request_id, json.dumps(body).encode())
        try:
            async with asyncio.timeout(self._seconds):
                await self._inference.handle(inner.exchange)
        except TimeoutError:
            raise HttpError(
                504,
                f"The model {body['model']!r} did not answer within {self._seconds:g} seconds.",
                kind="timeout_error",
                code="timeout",
            ) from None
        try:
            return _completion.decode(inner.answer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise HttpError(
                502,
                "The engine's response is not a chat completion.",
                kind="server_error",
                code="engine_failed",
            ) from None


class InnerRequest:
    """A request that comes from here, and the answer to it."""

    def __init__(
        self,
        path: str,
        caller: Principal,
        request_id: str,
        body: bytes,
        *,
        background: bool = True,
    ):
        headers = [(b"x-request-id", request_id.encode())]
        scope: Scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        self.exchange = HttpExchange(scope, self._receive, self._send)
        self.exchange.principal = caller
        self.exchange.background = background
        self.answer = b""
        self._messages: list[Message] = [{"type": "http.request", "body": body}]

    async def _receive(self) -> Message:
        if self._messages:
            return self._messages.pop()
        # What is asked is short: it may end even when the caller has left.
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never

    async def _send(self, message: Message) -> None:
        self.answer += message.get("body", b"")
