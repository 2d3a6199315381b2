"""The sealed form of an object: a header, and frames of AES-256-GCM. Pure.

Each object has a cipher key of its own, by HKDF-SHA256 of the project's object key, a random salt
and the object's name: a frame opens in no other object. A frame's nonce is its number and whether
it is the last one, so that frames cannot be reordered, left out or cut off, and no nonce is used
twice. The header is associated data of every frame.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

FRAME_BYTES = 64 * 1024
TAG_BYTES = 16
SEALED_FRAME_BYTES = FRAME_BYTES + TAG_BYTES
# No format of files that Windlass reads begins so.
MAGIC = b"\x89windlass-seal1\n"
_ID_BYTES = 32
_SALT_BYTES = 32
HEADER_BYTES = len(MAGIC) + _ID_BYTES + _SALT_BYTES
_NUMBER_BYTES = 11
_ID = re.compile(rb"([A-Za-z0-9_-]+)\0*")


@dataclass(frozen=True, slots=True)
class Header:
    """Beginning of a sealed object: which key seals it, and its salt."""

    key_id: str
    salt: bytes

    def __bytes__(self) -> bytes:
        return MAGIC + self.key_id.encode("ascii").ljust(_ID_BYTES, b"\0") + self.salt


def new_header(key_id: str) -> Header:
    """Header of a new object; raises ValueError for an id that has no place in it."""
    if len(key_id) > _ID_BYTES or not _ID.fullmatch(key_id.encode()):
        raise ValueError("the id of an object key has 1 to 32 letters, digits, - and _")
    return Header(key_id, os.urandom(_SALT_BYTES))


def parse_header(beginning: bytes) -> Header | None:
    """Returns the header of a sealed object; None for an object that is not sealed.

    Raises ValueError for one that names no key.
    """
    if len(beginning) < HEADER_BYTES or not beginning.startswith(MAGIC):
        return None
    key_id = _ID.fullmatch(beginning, len(MAGIC), len(MAGIC) + _ID_BYTES)
    if key_id is None:
        raise ValueError("a header names no key")
    return Header(key_id[1].decode("ascii"), beginning[-_SALT_BYTES:])


def plain_bytes(stored: int) -> int:
    """Returns the size of what is sealed in `stored` bytes; raises ValueError for no such size."""
    frames, rest = divmod(stored - HEADER_BYTES, SEALED_FRAME_BYTES)
    # Only an empty object has an empty frame.
    least = TAG_BYTES if frames == 0 else TAG_BYTES + 1
    if frames < 0 or (frames == 0 and rest == 0) or 0 < rest < least:
        raise ValueError("a sealed object was cut off")
    return frames * FRAME_BYTES + max(0, rest - TAG_BYTES)


def sealed_bytes(plain: int) -> int:
    """Returns the size of the sealed form of `plain` bytes."""
    frames = max(1, -(-plain // FRAME_BYTES))
    return HEADER_BYTES + plain + frames * TAG_BYTES


class FrameCipher:
    """Seals and opens the frames of one object."""

    def __init__(self, object_key: bytes, header: Header, name: str):
        derivation = HKDF(
            algorithm=SHA256(), length=32, salt=header.salt, info=b"object " + name.encode()
        )
        self._cipher = AESGCM(derivation.derive(object_key))
        self._associated = bytes(header)

    def seal(self, number: int, plain: bytes | memoryview, *, is_last: bool) -> bytes:
        """Returns one frame as it is stored."""
        return self._cipher.encrypt(_nonce(number, is_last=is_last), plain, self._associated)

    def open(self, number: int, frame: bytes | memoryview, *, is_last: bool) -> bytes:
        """Returns what one frame holds; raises ValueError where it is not this frame."""
        try:
            return self._cipher.decrypt(_nonce(number, is_last=is_last), frame, self._associated)
        except InvalidTag as error:
            raise ValueError("a frame does not open") from error


class FrameWriter:
    """Cuts a stream into frames and seals them; holds back what may be the last one."""

    def __init__(self, cipher: FrameCipher):
        self._cipher = cipher
        self._held = b""
        self._number = 0

    def add(self, plain: bytes) -> bytes:
        """Returns the frames that are whole and not the last."""
        content = self._held + plain
        whole = max(0, (len(content) - 1) // FRAME_BYTES) * FRAME_BYTES
        self._held = content[whole:]
        return b"".join(self._sealed(memoryview(content)[:whole]))

    def finish(self) -> bytes:
        """Returns the last frame."""
        return self._cipher.seal(self._number, self._held, is_last=True)

    def _sealed(self, content: memoryview) -> Iterator[bytes]:
        for at in range(0, len(content), FRAME_BYTES):
            yield self._cipher.seal(self._number, content[at : at + FRAME_BYTES], is_last=False)
            self._number += 1


def open_frames(cipher: FrameCipher, frames: bytes, *, first: int, last: int) -> bytes:
    """Returns what adjoining frames hold, of which `last` is the object's last.

    Raises ValueError where one was changed, moved or cut.
    """
    view, opened = memoryview(frames), []
    for at in range(0, len(view), SEALED_FRAME_BYTES):
        number = first + at // SEALED_FRAME_BYTES
        frame = view[at : at + SEALED_FRAME_BYTES]
        opened.append(cipher.open(number, frame, is_last=number == last))
    return b"".join(opened)


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big") + bytes([is_last])
