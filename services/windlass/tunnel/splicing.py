"""Two streams of bytes joined into one."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import ByteStream


async def splice(one: "Duplex", other: "Duplex") -> None:
    """Carries bytes both ways until both have ended; when one is cut, so is the other."""

    async def pump(source: "Duplex", sink: "Duplex") -> None:
        try:
            while data := await source.read():
                await sink.write(data)
            await sink.close_write()
        except AppError as error:
            source.abort(error)
            sink.abort(error)

    for this, that in ((one, other), (other, one)):
        # A pump that waits for the one does not see that the other was cut.
        if isinstance(this, ByteStream):
            this.when_cut(that.abort)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(one, other))
            group.create_task(pump(other, one))
    except BaseException:
        one.abort()
        other.abort()
        raise


class Duplex(Protocol):
    """Either side of `splice`: a ByteStream, a socket, another's call."""

    def read(self) -> Coroutine[Any, Any, bytes]:
        """The next bytes; b"" at the end."""

    def write(self, data: bytes) -> Coroutine[Any, Any, None]:
        """Sends."""

    def close_write(self) -> Coroutine[Any, Any, None]:
        """Ends our side."""

    def abort(self, error: AppError | None = None) -> None:
        """Ends both."""
