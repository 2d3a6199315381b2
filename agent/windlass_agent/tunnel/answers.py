"""Heads of HTTP messages in streams, and a target's answer passed on to its very end."""

from collections.abc import Awaitable, Callable

from windlass.tunnel.byte_stream import ByteStream
from windlass.tunnel.http1 import END_OF_HEAD, HEAD_BYTES
from windlass.tunnel.http1_bodies import MalformedHttp, MessageBody
from windlass_agent.tunnel.sockets import Socket


async def read_head(read: Callable[[], Awaitable[bytes]], data: bytes = b"") -> tuple[bytes, bytes]:
    """The next head, of which `data` has come, and what came behind it.

    The head is empty where everything ended before it began. Raises MalformedHttp.
    """
    while (end := data.find(END_OF_HEAD)) < 0:
        if len(data) > HEAD_BYTES:
            raise MalformedHttp("The head is too long.", status=431)
        more = await read()
        if not more:
            if data:
                raise MalformedHttp("The head ended before it was complete.")
            return b"", b""
        data += more
    end += len(END_OF_HEAD)
    return data[:end], data[end:]


async def pass_body(
    socket: Socket, stream: ByteStream, pending: bytes, data: bytes, body: MessageBody
) -> None:
    """Passes an answer's body on, of which `data` has come, behind what is `pending`.

    Raises AppError, MalformedHttp.
    """

    def take(data: bytes) -> bool:
        return stream.has_room(len(data)) and body.passes(data) and stream.write_now(data)

    async def taken() -> bool:
        count = body.take(data)
        if count < len(data):
            # Not ours; and so the connection cannot be used again.
            socket.abort()
        await stream.write(pending + data[:count])
        return body.done

    socket.pass_on(take)
    try:
        while not await taken():
            pending, data = b"", await socket.read()
            if not data:
                body.end()
                return
    finally:
        socket.pass_on(None)
