"""WebSocket frames, as RFC 6455 has them, of a client that sends and takes binary messages; pure.

The base install has no WebSocket library, and exec needs little of one.
"""

import base64
import hashlib
import os
from dataclasses import dataclass, field

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MESSAGE_BYTES = 16 * 2**20
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ProtocolError(Exception):
    """The other side does not speak WebSocket."""


def new_key() -> str:
    """A value for `Sec-WebSocket-Key`."""
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    """The `Sec-WebSocket-Accept` that answers a key."""
    digest = hashlib.sha1(key.encode() + _MAGIC, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def frame(opcode: int, payload: bytes) -> bytes:
    """Returns one whole message, masked as a client must."""
    size = len(payload)
    if size < 126:
        head = bytes([0x80 | opcode, 0x80 | size])
    elif size < 65536:
        head = bytes([0x80 | opcode, 0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, 0x80 | 127]) + size.to_bytes(8, "big")
    mask = os.urandom(4)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    masked = (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")
    return head + mask + masked


@dataclass
class Frames:
    """Reads the messages of a server from its bytes."""

    _buffer: bytearray = field(default_factory=bytearray)
    _parts: bytearray = field(default_factory=bytearray)
    _kind: int = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The (opcode, payload) that are now whole; raises ProtocolError."""
        self._buffer += data
        found = []
        while (one := self._next()) is not None:
            final, opcode, payload = one
            if opcode >= CLOSE:
                found.append((opcode, payload))
                continue
            if (opcode == CONTINUATION) != bool(self._kind):
                raise ProtocolError("a fragment arrived out of order")
            self._kind = self._kind or opcode
            self._parts += payload
            if len(self._parts) > MESSAGE_BYTES:
                raise ProtocolError("a message is too long")
            if final:
                found.append((self._kind, bytes(self._parts)))
                self._kind, self._parts = 0, bytearray()
        return found

    def _next(self) -> tuple[bool, int, bytes] | None:
        if len(self._buffer) < 2:
            return None
        first, second = self._buffer[0], self._buffer[1]
        if first & 0x70 or second & 0x80:
            raise ProtocolError("a frame has reserved bits set")
        size, start = second, 2
        if second >= 126:
            start = 4 if second == 126 else 10
            if len(self._buffer) < start:
                return None
            size = int.from_bytes(self._buffer[2:start], "big")
        if size > MESSAGE_BYTES:
            raise ProtocolError("a frame is too long")
        if len(self._buffer) < start + size:
            return None
        payload = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return bool(first & 0x80), first & 0x0F, payload
