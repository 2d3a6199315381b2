"""Streams that a process follows for ever, and how long ago each was heard."""

import asyncio
import time
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, Generic, TypeVar

import grpc

from windlass.core import telemetry
from windlass.core.backoff import Backoff
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
# Pauses before a lost stream is opened again, at first and at most.
RECONNECT_SECONDS, MAX_RECONNECT_SECONDS = 0.5, 3.0


class Follower(Generic[Message]):
    """Follows one stream through every loss of its peer.

    `hear` takes each message, and those that are pages of one change as one. What it raises ends
    the follower.
    """

    def __init__(
        self,
        name: str,
        open_stream: Callable[[], AsyncIterable[Message]],
        hear: Callable[[Message], Awaitable[None] | None],
        *,
        stale_seconds: float = STALE_SECONDS,
        reconnect_seconds: float = RECONNECT_SECONDS,
    ):
        self.name = name
        self._open = open_stream
        self._hear = hear
        self._stale_seconds = stale_seconds
        self._backoff = Backoff(shortest=reconnect_seconds, longest=MAX_RECONNECT_SECONDS)
        self._heard_at: float | None = None
        # Expires when the stream is to be opened again; None while there is none.
        self._present: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Follows until cancelled; what was heard before a loss stays as it is."""
        while True:
            present = self._present = asyncio.timeout(None)
            try:
                async with present:
                    await self._follow()
            except grpc.aio.AioRpcError as error:
                log.warning("stream_lost", stream=self.name, code=error.code().name)
            except TimeoutError:
                if present.expired():
                    continue
                log.warning("stream_silent", stream=self.name, seconds=self._stale_seconds)
            finally:
                self._present = None
            await self._backoff.pause()

    def reopen(self) -> None:
        """Opens the stream again at once, because what it asks for has changed."""
        if self._present is not None:
            self._present.reschedule(0)
            self._present = None

    async def check(self) -> None:
        """Checks readiness: raises Unavailable when the stream has been silent for too long."""
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
                    self._backoff.reset()
                    done = self._hear(whole)
                    whole = None
                    if done is not None:
                        await done
                    self._heard_at = time.monotonic()
        finally:
            call.cancel()
