"""Encoding of `Chunk`s of bytes, without a message around the bytes.

To build the message, to serialize it and to take its field out again would copy the bytes
once each, which costs more than the rest of their way through Python.
"""

from windlass.api.sessions.v1.sessions_pb2 import Chunk

# Field `data`, of a given length.
_DATA = (Chunk.DATA_FIELD_NUMBER << 3) | 2

Bytes = bytes | bytearray | memoryview


def encode(chunk: "Chunk | Bytes") -> bytes:
    """A chunk, or the bytes of one that holds nothing else, as they go over the wire."""
    if isinstance(chunk, Chunk):
        return chunk.SerializeToString()
    head, left = bytearray((_DATA,)), len(chunk)
    while left > 127:
        head.append(left & 127 | 128)
        left >>= 7
    head.append(left)
    return b"".join((head, chunk))


def decode(raw: bytes) -> "Chunk | bytes":
    """The bytes of a chunk that holds nothing else, and any other chunk as it is.

    Raises google.protobuf's DecodeError.
    """
    if raw[:1] == bytes((_DATA,)):
        size = shift = 0
        # A length takes five bytes at most.
        for place in range(1, min(6, len(raw))):
            size |= (raw[place] & 127) << shift
            shift += 7
            if raw[place] < 128:
                if size and place + 1 + size == len(raw):
                    return raw[place + 1 :]
                break
    return Chunk.FromString(raw)


# For the boundary of a server whose servicers read and write `ByteStream`s.
STREAM_CODECS = {Chunk.FromString: (decode, encode)}
