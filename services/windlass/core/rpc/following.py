"""Streams that a process follows for ever, and how long ago each was heard."""

import asyncio
import time
from collections.abc import AsyncIterable, Callable
from typing import Any, Generic, TypeVar

import grpc

from windlass.core import telemetry
from windlass.core.errors import Unavailable

Message = TypeVar("Message")

log = telemetry.logger("following")
# How often the server of a stream says that it lives, when it has nothing else to say.
BEAT_SECONDS = 3.0
# The rows behind a stream are read again after this, since a wake-up is lost with a process that
# is killed before it sends it.
LOOK_SECONDS = 6.0
# A stream that was silent for so long is opened again, and its process is not ready.
STALE_SECONDS = 10.0
RECONNECT_SECONDS = 0.5


class Follower(Generic[Message]):
    """Follows one stream through every loss of its peer.

    `hear` takes each message, and those that are pages of one change as one.
    """

    def __init__(
        self,
        name: str,
        open_stream: Callable[[], AsyncIterable[Message]],
        hear: Callable[[Message], None],
        *,
        stale_seconds: float = STALE_SECONDS,
    ):
        self.name = name
        self._open = open_stream
        self._hear = hear
        self._stale_seconds = stale_seconds
        self._heard_at: float | None = None

    async def run(self) -> None:
        """Follows until cancelled; what was heard before a loss stays as it is."""
        while True:
            try:
                await self._follow()
            except grpc.aio.AioRpcError as error:
                log.warning("stream_lost", stream=self.name, code=error.code().name)
            except TimeoutError:
                log.warning("stream_silent", stream=self.name, seconds=self._stale_seconds)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def check(self) -> None:
        """For readiness: raises Unavailable when the stream has been silent for too long."""
        if self._heard_at is None:
            raise Unavailable(f"The stream of {self.name} has not begun.", reason="stale")
        silent = time.monotonic() - self._heard_at
        if silent > self._stale_seconds:
            raise Unavailable(
                f"The stream of {self.name} has been silent for {silent:.0f} s.", reason="stale"
            )

    async def _follow(self) -> None:
        call: Any = self._open()
        stream = aiter(call)
        whole: Any = None
        try:
            while True:
                async with asyncio.timeout(self._stale_seconds):
                    message = await anext(stream, None)
                if message is None:
                    return
                if whole is None:
                    whole = message
                else:
                    whole.MergeFrom(message)
                # Only messages that can be pages of a change have the field.
                if not getattr(message, "more", False):
                    self._hear(whole)
                    whole = None
                    self._heard_at = time.monotonic()
        finally:
            call.cancel()
