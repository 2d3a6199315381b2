"""Apps that have ended, which caches of FastAPI and the frozen heap of a gateway would keep.

A process serves one app, and so its listener freezes it. A worker of the tests has hundreds of
them, 14 MB each, and six workers share the memory of the machine.
"""

import gc
import itertools

from fastapi.dependencies import models

_EVERY = 16
_ended = itertools.count(1)


def app_ended() -> None:
    """Has the memory of apps freed, now and then: to look through all objects takes a second."""
    if next(_ended) % _EVERY == 0:
        free()


def free() -> None:
    """Forgets the endpoints that FastAPI remembers, and collects what nothing else knows."""
    for cache in vars(models).values():
        if hasattr(cache, "cache_clear"):
            cache.cache_clear()
    gc.unfreeze()
    gc.collect()
    gc.freeze()
