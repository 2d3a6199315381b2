"""Projects' data keys while they are in use: made, unwrapped, and kept for some minutes."""

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from windlass.core import telemetry
from windlass.core.errors import AppError
from windlass.core.ids import new_id
from windlass.core.keyring import Envelope, Keyring
from windlass.core.keyring.envelope import mark_of
from windlass.core.keyring.pkcs11 import Pkcs11WrappingKey
from windlass.core.keyring.wrapping import KEY_BYTES, LocalWrappingKey, WrappingKey
from windlass.users.encryption.data_keys import DataKeyStore
from windlass.users.encryption.domain import (
    DataKey,
    NewDataKey,
    object_key_context,
    unavailable,
    unusable,
)
from windlass.users.encryption.external_keys import ExternalKeyStore
from windlass.users.encryption.keepers import KeyKeepers

log = telemetry.logger("users.external_keys")
# Unwrapped data keys of this process.
_KEPT = 4096
# A keeper that does not answer is not asked again for so long: requests would queue behind it.
_FAILED_SECONDS = 5.0
# Of an organization: trials of its keys at once.
_TRIALS = 4


@dataclass(frozen=True)
class SealingKey:
    """A project's current data key, if it has one, and the envelope that seals now."""

    key: DataKey | None
    envelope: Envelope


@dataclass(frozen=True)
class KeptKey:
    """The envelope of an unwrapped data key, and for how many seconds it may be kept yet."""

    envelope: Envelope
    seconds: float


class ProjectDataKeys:
    """Envelopes of projects, each by the data key that sealed or is to seal."""

    def __init__(
        self,
        rows: DataKeyStore,
        external_keys: ExternalKeyStore,
        keepers: KeyKeepers,
        keyring: Keyring,
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        """A data key is kept for so many `seconds` after its unwrapping."""
        self._rows = rows
        self._external_keys = external_keys
        self._keepers = keepers
        self._seconds = seconds
        self._clock = clock
        self._root = LocalWrappingKey([keyring.derive("projects' data keys")])
        # Of projects that never had a key of their own: servers of the release before, which know
        # no data keys, read their secrets too.
        self._without = keyring.envelope("tenants' secrets")
        self._kept: OrderedDict[str, tuple[float, Envelope]] = OrderedDict()
        self._failed: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._trials: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @property
    def root_mark(self) -> bytes:
        """Mark of what is sealed for projects without a data key."""
        return self._without.mark

    async def sealing(self, project_id: str) -> SealingKey:
        """The current data key of a project; raises Unavailable `external_key_unavailable`."""
        key = await self._rows.current(project_id)
        return SealingKey(key, self._without if key is None else (await self.kept(key)).envelope)

    async def opening(self, project_id: str, envelope: bytes) -> Envelope:
        """The envelope that opens what a project has sealed.

        Raises Unavailable `external_key_unavailable`.
        """
        key = await self._rows.of_mark(project_id, mark_of(envelope))
        return self._without if key is None else (await self.kept(key)).envelope

    async def new(self, organization_id: str, project_id: str, external_key_id: str) -> NewDataKey:
        """A data key that is not stored yet, wrapped and unwrapped once by its external key.

        Raises NotFound, and FailedPrecondition `external_key_unavailable`.
        """
        plain = os.urandom(KEY_BYTES)
        envelope, object_key_id = Envelope([plain]), new_id("okey_")
        blank = DataKey(
            id=new_id("dkey_"),
            organization_id=organization_id,
            project_id=project_id,
            external_key_id=external_key_id,
            wrapped="",
            mark=envelope.mark,
            object_key_id=object_key_id,
        )
        wrapped = await self._try(organization_id, external_key_id, plain, blank.context)
        context = object_key_context(project_id, object_key_id)
        object_key = envelope.seal(os.urandom(KEY_BYTES), context=context)
        return NewDataKey(replace(blank, wrapped=wrapped), object_key)

    async def validate(self, organization_id: str, external_key_id: str) -> None:
        """Wraps and unwraps by an external key.

        Raises NotFound, and FailedPrecondition `external_key_unavailable`.
        """
        context = f"{organization_id}/{new_id('check_')}"
        await self._try(organization_id, external_key_id, os.urandom(KEY_BYTES), context)

    async def _try(
        self, organization_id: str, external_key_id: str, plain: bytes, context: str
    ) -> str:
        wrapping = await self._wrapping(organization_id, external_key_id, unusable)
        turn = self._trials.setdefault(organization_id, asyncio.Semaphore(_TRIALS))
        try:
            async with turn:
                wrapped = await wrapping.wrap(plain, context=context)
                is_same = await wrapping.unwrap(wrapped, context=context) == plain
        except (OSError, ValueError) as error:
            raise unusable(external_key_id, _said(wrapping, external_key_id, error)) from error
        if not is_same:
            raise unusable(external_key_id, "it does not open what it wrapped")
        return wrapped

    async def kept(self, key: DataKey) -> KeptKey:
        """The envelope of a data key; raises Unavailable `external_key_unavailable`."""
        # One at a time, so that many requests are one question to the keeper.
        turn = self._turns.setdefault(key.id, asyncio.Lock())
        async with turn:
            until, envelope = self._kept.get(key.id, (0.0, None))
            if envelope is None or self._clock() >= until:
                self._kept.pop(key.id, None)
                envelope = Envelope([await self._unwrapped(key)])
                until = self._clock() + self._seconds
                self._kept[key.id] = (until, envelope)
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return KeptKey(envelope, until - self._clock())

    async def _unwrapped(self, key: DataKey) -> bytes:
        until, why = self._failed.pop(key.id, (0.0, ""))
        if self._clock() < until:
            self._failed[key.id] = until, why
            raise unavailable(key.external_key_id, why)
        wrapping = await self._wrapping(key.organization_id, key.external_key_id, unavailable)
        try:
            return await wrapping.unwrap(key.wrapped, context=key.context)
        except (OSError, ValueError) as error:
            why = _said(wrapping, key.external_key_id, error)
            self._failed[key.id] = self._clock() + min(_FAILED_SECONDS, self._seconds), why
            if len(self._failed) > _KEPT:
                self._failed.popitem(last=False)
            raise unavailable(key.external_key_id, why) from error

    async def _wrapping(
        self, organization_id: str, external_key_id: str, error: Callable[[str, object], AppError]
    ) -> WrappingKey:
        if not external_key_id:
            return self._root
        key = await self._external_keys.get(organization_id, external_key_id)
        try:
            return self._keepers.of(key)
        except (OSError, ValueError) as why:
            raise error(external_key_id, why) from why


def _said(wrapping: WrappingKey, external_key_id: str, error: Exception) -> str:
    """Returns what a keeper said as a tenant may read it, to whom the token is but a name."""
    if not isinstance(wrapping, Pkcs11WrappingKey):
        return str(error)
    log.warning("token_not_used", external_key_id=external_key_id, reason=str(error))
    return "its token is away, has no such key, or does not open what it wrapped"
