"""Envelope encryption with AES-256-GCM: a data key for each value, wrapped by a primary key.

A rotation of the primary key rewrites 60 bytes a value. The context is bound to the
ciphertext: a value that is copied to another place does not open there.
"""

import hashlib
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12
_ID = 8
_WRAPPED = 32 + 16 + _NONCE


class Envelope:
    """Seals values under the first of some 32-byte keys, and opens them under any of them."""

    def __init__(self, keys: Sequence[bytes]):
        self._ciphers = {hashlib.sha256(key).digest()[:_ID]: AESGCM(key) for key in keys}
        self._primary = hashlib.sha256(keys[0]).digest()[:_ID]

    def seal(self, value: bytes, *, context: str) -> bytes:
        """Return the value as stored: key id, wrapped data key, ciphertext."""
        data_key = AESGCM.generate_key(256)
        return self._wrap(data_key, context) + _encrypt(AESGCM(data_key), value, context)

    def open(self, envelope: bytes, *, context: str) -> bytes:
        """Return the value; raises ValueError when no key fits or it was tampered with."""
        data_key = self._unwrap(envelope, context)
        return _decrypt(AESGCM(data_key), envelope[_ID + _WRAPPED :], context)

    def rewrap(
        self, envelope: bytes, *, context: str, sealed_by: "Envelope | None" = None
    ) -> bytes:
        """Return the same value, maybe of another envelope, its data key wrapped by the primary.

        Raises ValueError as `open`.
        """
        data_key = (sealed_by or self)._unwrap(envelope, context)
        return self._wrap(data_key, context) + envelope[_ID + _WRAPPED :]

    def is_current(self, envelope: bytes) -> bool:
        """Tell whether the primary key wraps it already."""
        return mark_of(envelope) == self._primary

    @property
    def mark(self) -> bytes:
        """Beginning of the values that it seals; it tells nothing of the key."""
        return self._primary

    def _wrap(self, data_key: bytes, context: str) -> bytes:
        return self._primary + _encrypt(self._ciphers[self._primary], data_key, context)

    def _unwrap(self, envelope: bytes, context: str) -> bytes:
        cipher = self._ciphers.get(envelope[:_ID])
        if cipher is None:
            raise ValueError("no key opens this secret")
        return _decrypt(cipher, envelope[_ID : _ID + _WRAPPED], context)


def mark_of(envelope: bytes) -> bytes:
    """Return the mark of the key that wraps the data key of a value."""
    return envelope[:_ID]


def _encrypt(cipher: AESGCM, value: bytes, context: str) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + cipher.encrypt(nonce, value, context.encode())


def _decrypt(cipher: AESGCM, sealed: bytes, context: str) -> bytes:
    try:
        return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
    except InvalidTag as error:
        raise ValueError("the secret does not decrypt") from error
