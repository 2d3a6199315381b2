"""The installation's root key: made once, opened at each start, sealed by its master keys."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring.masters import SAME_KEY, KeyringError, master_keys
from windlass.core.keyring.seals import Seal, SealStore
from windlass.core.keyring.wrapping import KEY_BYTES, WrappingKey
from windlass.core.killpoints import reach

_CONTEXT = "windlass root key"


@dataclass(frozen=True)
class OpenedRoot:
    """The root key, and what opened it."""

    root: bytes
    opened_by: str
    # Of this process, the one that seals first.
    masters: Sequence[WrappingKey]
    # Keys of local ones, which sealed tenants' secrets before there was a root key.
    local: tuple[bytes, ...]
    seals: Sequence[Seal]


async def open_root(settings: Settings, database: Database) -> OpenedRoot:
    """Return the root key, which is made where there is none; raises KeyringError."""
    store = SealStore(database)
    seals = await store.all()
    masters, local = master_keys(settings.master_key, settings.data_dir, sealed_by=names(seals))
    if not seals:
        # Sealed before the transaction: a keeper may be asked over the network.
        try:
            wrapped = await masters[0].wrap(secrets.token_bytes(KEY_BYTES), context=_CONTEXT)
        except OSError as error:
            raise _unusable(error) from error
        await store.make(masters[0].id, wrapped)
        seals = await store.all()
    if not seals:
        raise KeyringError("the database did not store the root key: is it read-only?")
    root, opened_by = await _open(masters, seals)
    return OpenedRoot(root, opened_by, masters, local, seals)


async def seal_root(opened: OpenedRoot, store: SealStore) -> str:
    """Seal the root key by the first master key as well, and return that key's id.

    What is stored was opened once. Raises OSError, KeyringError.
    """
    first = opened.masters[0]
    wrapped = await first.wrap(opened.root, context=_CONTEXT)
    reach("keyring.wrapped")
    try:
        is_same = await first.unwrap(wrapped, context=_CONTEXT) == opened.root
    except ValueError:
        is_same = False
    if not is_same:
        raise KeyringError(f"the master key {first.id} does not open what it sealed")
    await store.put(first.id, wrapped)
    reach("keyring.sealed")
    return first.id


async def retire_others(opened: OpenedRoot, store: SealStore) -> Sequence[str]:
    """Remove the seals of all master keys but the first, and return their ids.

    Raises OSError, and KeyringError where the first opens no seal of its own.
    """
    first = opened.masters[0]
    own = [seal for seal in opened.seals if seal.master_key_id == first.id]
    try:
        opens = bool(own) and await first.unwrap(own[0].wrapped, context=_CONTEXT) == opened.root
    except ValueError:
        opens = False
    if not opens:
        raise KeyringError(
            f"the master key {first.id} does not seal the root key: run "
            "`windlass admin master-key rotate` before"
        )
    if not await store.keep_only(own[0]):
        raise KeyringError("the root key was sealed anew meanwhile: run the command again")
    reach("keyring.retired")
    return [seal.master_key_id for seal in opened.seals if seal.master_key_id != first.id]


def names(seals: Sequence[Seal]) -> str:
    """Return the ids of the master keys, for messages."""
    return ", ".join(seal.master_key_id for seal in seals)


async def _open(masters: Sequence[WrappingKey], seals: Sequence[Seal]) -> tuple[bytes, str]:
    """Return the root key and the id of the master key that opens it, the first that can."""
    away: OSError | None = None
    for master in masters:
        for seal in seals:
            try:
                return await master.unwrap(seal.wrapped, context=_CONTEXT), master.id
            except ValueError:
                continue
            except OSError as error:
                away = away or error
                break
    if away is not None:
        raise _unusable(away) from away
    raise KeyringError(
        f"this process's master key ({masters[0].id}) is not the one of this database "
        f"({names(seals)}): {SAME_KEY}"
    )


def _unusable(error: OSError) -> KeyringError:
    return KeyringError(f"the master key cannot be used: {error}")
