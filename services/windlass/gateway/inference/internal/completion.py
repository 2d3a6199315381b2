"""Completions that services request of the token path, on behalf of a project."""

import asyncio

from windlass.core.rpc.auth import Principal
from windlass.gateway.errors import HttpError
from windlass.gateway.inference.handler import InferenceHandler
from windlass.gateway.inference.internal.chat import InnerRequest
from windlass.inference_api.routes import COMPLETIONS


class InternalCompletions:
    """Requests completions as a project's own, of which nothing is streamed."""

    def __init__(self, inference: InferenceHandler, *, seconds: float):
        self._inference = inference
        self._seconds = seconds

    async def complete(self, caller: Principal, body: bytes) -> bytes:
        """The engine's answer to a body.

        Raises what such a request is refused with, and HttpError 504 when time is up.
        """
        inner = InnerRequest(COMPLETIONS, caller, "", body, background=False)
        try:
            async with asyncio.timeout(self._seconds):
                await self._inference.handle(inner.exchange)
        except TimeoutError:
            raise HttpError(
                504,
                f"The engine did not answer within {self._seconds:g} seconds.",
                kind="timeout_error",
                code="timeout",
            ) from None
        return inner.answer
