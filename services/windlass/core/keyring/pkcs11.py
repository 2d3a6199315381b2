"""A key in a PKCS#11 token, such as a hardware security module, which never hands it out."""

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from windlass.core.keyring.blocking import BlockingCalls

_PREFIX = "pkcs11"
_NONCE = 12
_TAG_BITS = 128


@dataclass(frozen=True)
class TokenKey:
    """Place of an AES key; the first label's wraps, the others' unwrap what they wrapped."""

    module: Path
    token: str
    labels: Sequence[str]


class Pkcs11WrappingKey:
    """Wraps with AES-GCM within the token, the context as associated data.

    The key must be sensitive and must not be extractable. Its session stays open, and is opened
    anew when the token lost it.
    """

    def __init__(self, place: TokenKey, pin: Callable[[], str]):
        """`pin` is called when a session is opened."""
        self._place = place
        self._pin = pin
        self._session: Any = None
        # A PIN that the token did not accept is never tried again: few tries lock it.
        self._refused: str | None = None

    @property
    def id(self) -> str:
        """Labels of token and key."""
        return f"{_PREFIX}:{self._place.token}/{self._place.labels[0]}"

    async def wrap(self, key: bytes, *, context: str) -> str:
        """Encrypt within the token; raises OSError."""
        label = self._place.labels[0]
        sealed = await self._run(partial(self._encrypt, label, key, context))
        return f"{_PREFIX}:{label}:{base64.b64encode(sealed).decode()}"

    async def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """Decrypt within the token; raises ValueError or OSError."""
        prefix, _, rest = wrapped.partition(":")
        label, _, encoded = rest.rpartition(":")
        if prefix != _PREFIX or label not in self._place.labels:
            raise ValueError("it was not wrapped by this key of a PKCS#11 token")
        sealed = base64.b64decode(encoded, validate=True)
        return await self._run(partial(self._decrypt, label, sealed, context))

    async def _run(self, call: Callable[[], bytes]) -> bytes:
        return await _calls(self._place.module).run(partial(self._attempt, call))

    def _attempt(self, call: Callable[[], bytes]) -> bytes:
        """Call, and once more with a new session where the token lost the one before."""
        was_open = self._session is not None
        try:
            return call()
        except RuntimeError as error:
            self._close()
            if not was_open and not self._is_final(error):
                # The module may have been loaded before the token was there.
                self._reinitialize()
            elif not was_open:
                raise self._unusable(error) from error
        try:
            return call()
        except RuntimeError as error:
            self._close()
            raise self._unusable(error) from error

    def _is_final(self, error: RuntimeError) -> bool:
        """True if another try changes nothing; one with a wrong PIN may lock the token."""
        pkcs11 = _library()
        name = type(error).__name__
        return name.startswith("Pin") or isinstance(
            error, (pkcs11.NoSuchKey, pkcs11.MultipleObjectsReturned)
        )

    def _unusable(self, error: RuntimeError) -> OSError:
        name = type(error).__name__
        if name.startswith("Pin"):
            self._refused = self._pin()
        detail = f"{name}: {error}" if str(error) else name
        return OSError(f"the PKCS#11 token {self._place.token} cannot be used: {detail}")

    def _encrypt(self, label: str, value: bytes, context: str) -> bytes:
        nonce = os.urandom(_NONCE)
        return nonce + bytes(self._key(label).encrypt(value, **_gcm(nonce, context)))

    def _decrypt(self, label: str, sealed: bytes, context: str) -> bytes:
        pkcs11, key = _library(), self._key(label)
        nonce, ciphertext = sealed[:_NONCE], sealed[_NONCE:]
        try:
            return bytes(key.decrypt(ciphertext, **_gcm(nonce, context)))
        except (pkcs11.GeneralError, pkcs11.EncryptedDataInvalid, pkcs11.EncryptedDataLenRange):
            # SoftHSM says the same of a wrong tag and of a device that is out of order: try it.
            self._decrypt_own(key, context)
            raise ValueError("the PKCS#11 key does not decrypt it") from None

    def _decrypt_own(self, key: Any, context: str) -> None:
        nonce, value = os.urandom(_NONCE), os.urandom(_NONCE)
        key.decrypt(key.encrypt(value, **_gcm(nonce, context)), **_gcm(nonce, context))

    def _key(self, label: str) -> Any:
        pkcs11 = _library()
        key = self._opened().get_key(
            object_class=pkcs11.ObjectClass.SECRET_KEY, key_type=pkcs11.KeyType.AES, label=label
        )
        if key[pkcs11.Attribute.EXTRACTABLE] or not key[pkcs11.Attribute.SENSITIVE]:
            raise OSError(
                f"the key {label} of the PKCS#11 token {self._place.token} can be read out: make "
                "one that is sensitive and not extractable"
            )
        return key

    def _opened(self) -> Any:
        if self._session is None:
            pkcs11 = _library()
            token = pkcs11.lib(str(self._place.module)).get_token(token_label=self._place.token)
            pin = self._pin()
            if pin == self._refused:
                raise OSError(f"the PKCS#11 token {self._place.token} does not accept the PIN")
            try:
                self._session = token.open(user_pin=pin)
            except pkcs11.UserAlreadyLoggedIn:
                # By another key of this process: a login is the process's, not the session's.
                self._session = token.open()
        return self._session

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except RuntimeError:
                return

    def _reinitialize(self) -> None:
        try:
            _library().lib(str(self._place.module)).reinitialize()
        except RuntimeError:
            return


def _library() -> Any:
    try:
        import pkcs11
    except ImportError as error:
        raise OSError("python-pkcs11 is not installed: install windlass[pkcs11]") from error
    return pkcs11


@cache
def _calls(module: Path) -> BlockingCalls:
    """Return the one thread of a module: a process has one state of it, whoever uses it."""
    return BlockingCalls(f"the PKCS#11 module {module}", threads=1)


def _gcm(nonce: bytes, context: str) -> dict[str, Any]:
    pkcs11 = _library()
    parameters = pkcs11.GCMParams(nonce, context.encode(), _TAG_BITS)
    return {"mechanism": pkcs11.Mechanism.AES_GCM, "mechanism_param": parameters}
