"""One sealed object, opened: any range of it in bounded memory."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from windlass.core.objects.port import ObjectDamaged, ObjectStore
from windlass.core.objects.sealing.frames import (
    FRAME_BYTES,
    HEADER_BYTES,
    SEALED_FRAME_BYTES,
    TAG_BYTES,
    FrameCipher,
    open_frames,
)
from windlass.core.objects.sealing.keys import ObjectKey

# A mebibyte: each hop to a thread and back costs a switch of the interpreter.
_FRAMES_AT_ONCE = 16
# So often a read asks for its key: a slow reader would outlast one that was destroyed.
CONFIRM_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class OpenSealed:
    """An OpenObject: frames of the store, each opened before any of it is given away."""

    store: ObjectStore
    key: str
    cipher: FrameCipher
    size: int
    # Raises once the key that sealed it is away.
    confirm: Callable[[], Awaitable[ObjectKey]]

    async def read(self, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """See OpenObject.read; raises ObjectDamaged, and SealingKeyUnavailable."""
        if start >= stop:
            return
        last = max(0, self.size - 1) // FRAME_BYTES
        number, end = start // FRAME_BYTES, (stop - 1) // FRAME_BYTES
        confirmed = time.monotonic()
        async for frames in self._frames(number, end, last):
            if time.monotonic() - confirmed >= CONFIRM_SECONDS:
                await self.confirm()
                confirmed = time.monotonic()
            try:
                plain = await asyncio.to_thread(
                    open_frames, self.cipher, frames, first=number, last=last
                )
            except ValueError as error:
                raise damaged(self.key) from error
            at = number * FRAME_BYTES
            number += -(-len(frames) // SEALED_FRAME_BYTES)
            # A slow reader holds what it is sent, and not what that was made of.
            del frames
            yield plain[max(0, start - at) : stop - at]
        if number <= end:
            # Frames that are gone are no end.
            raise damaged(self.key)

    def close(self) -> None:
        """See OpenObject.close."""

    async def _frames(self, first: int, end: int, last: int) -> AsyncIterator[bytes]:
        """The stored frames from `first` to `end`, some whole ones at once."""
        beginning = HEADER_BYTES + first * SEALED_FRAME_BYTES
        stop = HEADER_BYTES + (end + 1) * SEALED_FRAME_BYTES
        if end == last:
            stop = HEADER_BYTES + self.size + (last + 1) * TAG_BYTES
        held = bytearray()
        async for chunk in self.store.get(self.key, start=beginning, end=stop):
            held += chunk
            del chunk
            if len(held) >= _FRAMES_AT_ONCE * SEALED_FRAME_BYTES:
                yield _whole_frames(held)
        if held:
            yield bytes(held)


def _whole_frames(held: bytearray) -> bytes:
    """Takes the frames that are whole."""
    whole = len(held) // SEALED_FRAME_BYTES * SEALED_FRAME_BYTES
    with memoryview(held) as view:
        taken = bytes(view[:whole])
    del held[:whole]
    return taken


def damaged(key: str) -> ObjectDamaged:
    """The error of an object that does not open with its own key."""
    return ObjectDamaged(
        f"The sealed object {key} was changed, cut or moved since it was stored; nothing opens it.",
        reason="object_damaged",
    )
