"""The loop of every watch: a snapshot, then what lies beyond the cursor whenever woken."""

from collections.abc import AsyncIterator, Awaitable, Callable

from windlass.clusters.domain import Change
from windlass.core.wake import Wake


async def follow(
    wake: Wake,
    topic: str,
    read: Callable[[int], Awaitable[Change]],
    *,
    poll: float,
    beats: bool = False,
) -> AsyncIterator[tuple[Change, bool]]:
    """Yields (change, is the snapshot) for ever; `read` answers what lies beyond a revision.

    The snapshot comes even when empty. What `read` raises ends the watch, within
    `poll` seconds of becoming true when nobody wakes the topic. With `beats` a change of
    nothing comes when there was none for `poll` seconds.
    """
    listener = wake.listen(topic)
    try:
        cursor, snapshot, spec = 0, True, 0
        while True:
            woken = await listener.wait(poll)
            change = await read(cursor)
            cursor = change.revision
            beat = beats and not woken
            if snapshot or beat or change.messages or change.spec_revision != spec:
                yield change, snapshot
            snapshot, spec = False, change.spec_revision
    finally:
        listener.close()
