"""A gate that holds each request to one version of the weights."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.inference_api.errors import ApiError, bad_value
from windlass.inference_api.routes import WEIGHT_VERSION


class VersionGate:
    """Requests run on one version from their first token to their last; used on the loop alone.

    An update waits until those that are open have ended, and requests that come wait for it.
    """

    def __init__(self) -> None:
        self._open = 0
        self._drained, self._free = asyncio.Event(), asyncio.Event()
        self._drained.set()
        self._free.set()

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Holds updates back."""
        while not self._free.is_set():
            await self._free.wait()
        self._open += 1
        self._drained.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._drained.set()

    @asynccontextmanager
    async def update(self, wait_seconds: float) -> AsyncIterator[None]:
        """Holds requests back, once the open ones have ended; one update at a time.

        Raises ApiError 503 where they do not end in time.
        """
        self._free.clear()
        try:
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._drained.wait()
            except TimeoutError as error:
                raise weights_in_use() from error
            yield
        finally:
            self._free.set()


def demanded_version(told: str | None) -> int | None:
    """The version that a request's header demands; raises ApiError 400 for what is none."""
    if told is None:
        return None
    if not (told.isascii() and told.isdigit() and len(told) < 17):
        raise bad_value(f"{WEIGHT_VERSION} must be the number of a version", WEIGHT_VERSION)
    return int(told)


def check_version(demanded: int | None, version: int) -> None:
    """Raises ApiError 409 for a request that demands another version than the one that answers."""
    if demanded not in (None, version):
        raise ApiError(
            f"The weights that answer are of version {version}.",
            status=409,
            param=WEIGHT_VERSION,
            code="weight_version_mismatch",
        )


def weights_in_use() -> ApiError:
    """A 503 for an update while requests are answered with the version before."""
    return ApiError(
        "Requests that are open have not ended. Try again later.",
        status=503,
        code="weights_in_use",
    )
