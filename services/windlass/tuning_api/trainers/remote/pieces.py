"""Messages in pieces: what may be larger than a message of gRPC, bounded as a whole."""

from collections.abc import AsyncIterator, Iterator
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from windlass.api.trainer.v1 import trainer_pb2 as pb

PIECE_BYTES = 2**20
# A body of the gateway's bound, all of it JSON of one-digit integers, is a third of that.
MESSAGE_BYTES = 256 * 2**20

T = TypeVar("T", bound=Message)


class PieceError(Exception):
    """Pieces that are too large together, no message, or not all of one."""


def split(message: Message, run_id: str = "") -> Iterator[pb.Piece]:
    """Yields the pieces of a message; raises PieceError for one that is too large."""
    content = message.SerializeToString()
    if len(content) > MESSAGE_BYTES:
        raise PieceError(f"a message has {len(content)} bytes, more than {MESSAGE_BYTES}")
    for start in range(0, max(len(content), 1), PIECE_BYTES):
        rest = content[start : start + PIECE_BYTES]
        yield pb.Piece(run_id=run_id, content=rest, ends=start + PIECE_BYTES >= len(content))
        run_id = ""


async def joined(pieces: AsyncIterator[pb.Piece], kind: type[T]) -> AsyncIterator[T]:
    """Yields messages whose pieces come one after the other; raises PieceError."""
    content = bytearray()
    async for piece in pieces:
        content += piece.content
        if len(content) > MESSAGE_BYTES:
            raise PieceError(f"a message has more than {MESSAGE_BYTES} bytes")
        if not piece.ends:
            continue
        try:
            message = kind.FromString(bytes(content))
        except DecodeError as error:
            raise PieceError("pieces are no message") from error
        content.clear()
        yield message
    if content:
        raise PieceError("the last message is not whole")
