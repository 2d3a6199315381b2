"""Waiting for what must come true, never for time."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Returns once a condition holds; a TimeoutError says which one did not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.1)
