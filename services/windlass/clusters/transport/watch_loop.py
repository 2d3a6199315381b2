"""The loop of every watch: a snapshot, then what lies beyond the cursor whenever woken."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable

from windlass.clusters.domain.records import ChangeBatch
from windlass.core.db.wake import Wake


async def follow(
    wake: Wake,
    topic: str,
    read: Callable[[int], Awaitable[ChangeBatch]],
    *,
    poll_seconds: float,
    beat_seconds: float = 0.0,
) -> AsyncIterator[tuple[ChangeBatch, bool]]:
    """Yields (change, is the snapshot) for ever; `read` answers what lies beyond a revision.

    The snapshot comes even when empty. What `read` raises ends the watch, within
    `poll_seconds` of becoming true when nobody wakes the topic. With `beat_seconds` a change of
    nothing comes when there was none for so many seconds.
    """
    listener = wake.listen(topic)
    try:
        cursor, snapshot, spec, looked_at = 0, True, 0, 0.0
        while True:
            if beat_seconds:
                woken = await listener.wait_for_beat(beat_seconds)
            else:
                woken = await listener.wait(poll_seconds)
            recent = time.monotonic() - looked_at < poll_seconds - beat_seconds / 2
            if beat_seconds and not woken and recent:
                yield ChangeBatch((), cursor, spec), False
                continue
            change, looked_at = await read(cursor), time.monotonic()
            cursor = change.revision
            beats = beat_seconds and not woken
            if snapshot or beats or change.messages or change.spec_revision != spec:
                yield change, snapshot
            snapshot, spec = False, change.spec_revision
    finally:
        listener.close()
