"""Keys that wrap other keys: the port, and keys that this process holds itself."""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Protocol

from windlass.core.keyring.envelope import Envelope

KEY_BYTES = 32


class WrappingKey(Protocol):
    """A key that wraps and unwraps 32 bytes and may never leave its keeper."""

    @property
    def id(self) -> str:
        """Keeper and name of the key that wraps now, for messages and to notice another key."""

    async def wrap(self, key: bytes, *, context: str) -> str:
        """Return the key, wrapped and bound to the context.

        Raises OSError when the wrapping key's keeper does not answer or refuses.
        """

    async def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """Return a key that `wrap` wrapped in this context.

        Raises ValueError when another key or context wrapped it or it was changed, OSError when
        the wrapping key's keeper does not answer or refuses.
        """


class LocalWrappingKey:
    """Keys in this process's memory: the first wraps, any of them unwraps."""

    def __init__(self, keys: Sequence[bytes]):
        self.keys = tuple(keys)
        self._envelope = Envelope(keys)

    @property
    def id(self) -> str:
        """First digits of the key's SHA-256."""
        return f"local:{hashlib.sha256(self.keys[0]).hexdigest()[:16]}"

    async def wrap(self, key: bytes, *, context: str) -> str:
        """Seal the key in an envelope."""
        return base64.b64encode(self._envelope.seal(key, context=context)).decode()

    async def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """Open the envelope; raises ValueError."""
        return self._envelope.open(base64.b64decode(wrapped, validate=True), context=context)


def parse_keys(text: str) -> list[bytes]:
    """Return the keys of a setting: base64 of 32 bytes each, comma-separated, newest first.

    Raises ValueError.
    """
    try:
        keys = [base64.b64decode(part.strip(), validate=True) for part in text.split(",")]
    except binascii.Error as error:
        raise ValueError("a master key is base64 of 32 bytes") from error
    if any(len(key) != KEY_BYTES for key in keys):
        raise ValueError("a master key is base64 of 32 bytes")
    return keys


def parse_file(content: bytes) -> list[bytes]:
    """Return the keys of a file: 32 raw bytes, or text as in the setting; raises ValueError."""
    if len(content) == KEY_BYTES:
        return [content]
    try:
        return parse_keys(content.decode("ascii").strip())
    except UnicodeDecodeError as error:
        raise ValueError("a master key file holds 32 bytes, or base64 of them") from error
