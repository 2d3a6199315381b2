"""The optimizer steps that an answer saw, said with each answer of the engine."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
HEADER = b"x-windlass-steps"
"""Header `FIRST-LAST`; a stream has `FIRST-` there, and the whole in a comment at its end."""


class ReportedSteps:
    """Middleware that says between which steps an answer was computed.

    `counts` returns the steps that have ended and those that have begun, or None for an engine that
    was never trained, whose answers stay as they are.
    """

    def __init__(self, app: Application, counts: Callable[[], tuple[int, int] | None]) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        counts = self._counts()
        # Routes of training say steps themselves.
        ours = scope.get("path", "").startswith(("/train", "/checkpoint"))
        if scope["type"] != "http" or ours or counts is None:
            await self._app(scope, receive, send)
            return
        answer = _Answer(counts[0], self._counts, send)
        await self._app(scope, receive, answer.send)


class _Answer:
    def __init__(
        self, first: int, counts: Callable[[], tuple[int, int] | None], send: Send
    ) -> None:
        self._first, self._counts, self._send = first, counts, send
        self._is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            kinds = [value for name, value in headers if name.lower() == b"content-type"]
            self._is_stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
            said = f"{self._first}-" if self._is_stream else self._range()
            message = {**message, "headers": [*headers, (HEADER, said.encode())]}
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        if is_last and self._is_stream:
            comment = f": {HEADER.decode()} {self._range()}\n\n".encode()
            message = {**message, "body": message.get("body", b"") + comment}
        await self._send(message)

    def _range(self) -> str:
        counts = self._counts()
        return f"{self._first}-{counts[1] if counts else self._first}"
