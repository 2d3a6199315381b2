"""Objects of collection, a million of them, are no concern of the garbage collector.

They live until the end. To go through them takes half a second, each time that enough new ones
have come, and five times at the end of a process.
"""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without the collector, and has it leave alone what they are."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
