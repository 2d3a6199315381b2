"""The time of this machine, for what is told of it; durations come from the monotonic clock."""

import time


def now_ms() -> int:
    """Unix milliseconds by this machine's clock."""
    return int(time.time() * 1000)
