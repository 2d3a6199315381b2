"""The master keys that a process is configured with."""

from collections.abc import Callable
from pathlib import Path

from windlass.core.config import MasterKeySection
from windlass.core.keyring.aws import AwsWrappingKey, KmsKey
from windlass.core.keyring.blocking import BlockingCalls
from windlass.core.keyring.files import private_key_file
from windlass.core.keyring.pkcs11 import Pkcs11WrappingKey, TokenKey
from windlass.core.keyring.vault import master_of
from windlass.core.keyring.wrapping import (
    KEY_BYTES,
    LocalWrappingKey,
    WrappingKey,
    parse_file,
    parse_keys,
)

MASTER_KEY_FILE = "master.key"
SAME_KEY = "give every process of an installation the same master_key"
_KMS_THREADS = 2


class KeyringError(Exception):
    """The installation's keys cannot be opened; the message says what to change."""


def master_keys(
    settings: MasterKeySection, data_dir: Path, *, sealed_by: str
) -> tuple[list[WrappingKey], tuple[bytes, ...]]:
    """Return the master keys, the one that seals first, and the bytes of the local ones.

    `sealed_by` names the keys that seal the root key, and is empty where there is none yet. Raises
    KeyringError.
    """
    named: dict[str, WrappingKey] = {
        keeper: make(settings) for keeper, is_named, make in _REMOTE if is_named(settings)
    }
    local = _local(settings, data_dir, sealed_by=sealed_by, needed=not named)
    if local is not None:
        named["local"] = local
    if settings.keeper and settings.keeper not in named:
        raise KeyringError(
            f"master_key.keeper is {settings.keeper}, and no such key is named in master_key"
        )
    first = [key for keeper, key in named.items() if keeper == settings.keeper]
    rest = [key for key in named.values() if key not in first]
    return first + rest, local.keys if local else ()


def _local(
    settings: MasterKeySection, data_dir: Path, *, sealed_by: str, needed: bool
) -> LocalWrappingKey | None:
    try:
        if text := settings.key.get_secret_value():
            return LocalWrappingKey(parse_keys(text))
        if settings.file is not None:
            return LocalWrappingKey(parse_file(settings.file.read_bytes()))
        if needed or settings.keeper == "local":
            return LocalWrappingKey([_own_key(data_dir / "keys", sealed_by)])
    except (ValueError, OSError) as error:
        raise KeyringError(f"the master key cannot be read: {error}") from error
    return None


def _own_key(folder: Path, sealed_by: str) -> bytes:
    """Return the key of the data folder; an older release called its file secrets.key.

    It is made only where the database has no root key yet: another could open nothing.
    """
    file, former = folder / MASTER_KEY_FILE, folder / "secrets.key"
    if former.exists() and not file.exists():
        former.rename(file)
    if sealed_by and not file.exists():
        raise KeyringError(
            f"{file.resolve()} does not exist, and the database's root key is sealed by a master "
            f"key ({sealed_by}): put the file back from a backup, or {SAME_KEY}"
        )
    return private_key_file(file, length=KEY_BYTES)


def _pkcs11(settings: MasterKeySection) -> WrappingKey:
    section = settings.pkcs11
    labels = (section.key, *section.former_keys)
    place = TokenKey(section.module or Path(), section.token, labels)
    return Pkcs11WrappingKey(place, section.user_pin)


def _aws(settings: MasterKeySection) -> WrappingKey:
    section = settings.aws
    place = KmsKey(
        section.key_arn,
        section.region,
        section.endpoint,
        section.sts_endpoint,
        section.role_arn,
        section.external_id,
    )
    return AwsWrappingKey(place, BlockingCalls("AWS KMS", threads=_KMS_THREADS))


_Named = Callable[[MasterKeySection], object]
_Make = Callable[[MasterKeySection], WrappingKey]
_REMOTE: tuple[tuple[str, _Named, _Make], ...] = (
    ("vault", lambda named: named.vault.address, lambda named: master_of(named.vault)),
    ("pkcs11", lambda named: named.pkcs11.module, _pkcs11),
    ("aws", lambda named: named.aws.key_arn, _aws),
)
