"""Server-sent events of a program that its keeper reads: one line of JSON each."""

from collections.abc import AsyncIterator

import aiohttp

from windlass.core.telemetry import logger
from windlass.inference_api.errors import ApiError

_DATA = b"data: "
DONE = b"[DONE]"
_log = logger("engine")


async def events(stream: aiohttp.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yields a comment and the data of each event, one of the two empty; `[DONE]` is data too.

    Raises ApiError when the program breaks off.
    """
    try:
        async for line in stream:
            if line.startswith(_DATA):
                yield b"", line[len(_DATA) :].strip()
            elif line.startswith(b":"):
                # It keeps the connection.
                yield line.rstrip(), b""
    except (aiohttp.ClientError, ValueError) as error:
        # A line that is too long is a ValueError.
        raise broken_off(error) from error


def broken_off(error: Exception) -> ApiError:
    """A 502 for an answer that the program does not end."""
    _log.warning("engine_broke_off", reason=repr(error))
    return ApiError("The engine broke off.", status=502, code="engine_failed")
