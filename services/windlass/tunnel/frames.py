"""Encoding of `Frames`, without a message around the bytes of their data.

As in `windlass.tunnel.chunks`, messages would copy the bytes at each step.
"""

from functools import lru_cache

from windlass.api.sessions.v1.sessions_pb2 import Frame, Frames
from windlass.tunnel.chunks import Bytes

_FRAME = bytes(((Frames.FRAMES_FIELD_NUMBER << 3) | 2,))
_STREAM = bytes((Frame.STREAM_FIELD_NUMBER << 3,))
_DATA = bytes(((Frame.DATA_FIELD_NUMBER << 3) | 2,))
# What `Frames` with this alone are; appended to others they say it too.
DRAIN = Frames(drain=True).SerializeToString()


@lru_cache(maxsize=4096)
def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def encode_data(stream: int, data: Bytes) -> tuple[Bytes, ...]:
    """Returns the parts that, joined, are `Frames` with one frame of data."""
    head = b"".join((_STREAM, _varint(stream), _DATA, _varint(len(data))))
    return _FRAME, _varint(len(head) + len(data)), head, data


def encode_frame(frame: Frame) -> tuple[Bytes, ...]:
    """Returns the parts that, joined, are `Frames` with any one frame."""
    return (Frames(frames=(frame,)).SerializeToString(),)


def as_it_is(frames: bytes) -> bytes:
    """Returns encoded `Frames`: a multiplexer does what gRPC's codecs would do."""
    return frames


# For the boundary of a server whose servicers read and write by multiplexers.
FRAMES_CODECS = {Frames.FromString: (as_it_is, as_it_is)}
