"""Holding answers back until an engine that starts has the newest version of its run."""

import json
from collections.abc import Callable

from windlass_vllm.api.reported_steps import Application, Receive, Scope, Send

_SAID = json.dumps(
    {
        "error": {
            "message": "The engine puts the newest version of its weights in place.",
            "type": "service_unavailable",
            "code": 503,
        }
    }
).encode()
_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_SAID)).encode()),
    (b"retry-after", b"1"),
]


class NewestVersionFirst:
    """Middleware that answers 503 while an engine would answer with weights older than its own.

    `is_behind` says so. Its health is no exception, so that nobody takes the engine for ready; only
    routes of training answer, since jobs may queue meanwhile.
    """

    def __init__(self, app: Application, is_behind: Callable[[], bool]) -> None:
        self._app, self._is_behind = app, is_behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        ours = scope.get("path", "").startswith(("/train", "/checkpoint"))
        if scope["type"] != "http" or ours or not self._is_behind():
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 503, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": _SAID})
