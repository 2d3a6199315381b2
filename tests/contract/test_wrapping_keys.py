"""One suite for what wraps other keys: this process, Vault, a PKCS#11 token and AWS KMS.

SoftHSM is a real token and moto answers for KMS. Vault is a fake, or the real one that
`VAULT_BINARY` names (in development mode).
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from tests.support.fakes import vault
from tests.support.keepers import moto_server, softhsm, vault_server
from tests.support.keepers.moto_server import Moto
from tests.support.keepers.softhsm import SoftHsm

from windlass.core.config import VaultTransitSection
from windlass.core.keyring.aws import AwsWrappingKey, KmsKey
from windlass.core.keyring.blocking import BlockingCalls
from windlass.core.keyring.pkcs11 import Pkcs11WrappingKey, TokenKey
from windlass.core.keyring.vault import VaultWrappingKey, master_of
from windlass.core.keyring.wrapping import LocalWrappingKey, WrappingKey

ROOT = os.urandom(32)


@dataclass(frozen=True)
class Kept:
    """A wrapping key, another that is not it, and what its keeper can do."""

    key: WrappingKey
    other: WrappingKey
    # Makes the keeper wrap by another version or key, and returns what wraps then.
    rotated: Callable[[], WrappingKey]
    # One whose keeper does not answer.
    unreachable: WrappingKey | None = None


@pytest.fixture(scope="module")
def hsm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SoftHsm]:
    made = softhsm.made(tmp_path_factory.mktemp("softhsm"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*next(iter(made.environment.items())))
        made.token("windlass")
        made.key("windlass", "one")
        made.key("windlass", "two")
        yield made


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    with moto_server.running() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in moto_server.CREDENTIALS.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(params=["local", "vault", "pkcs11", "aws"])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    match request.param:
        case "local":
            one, two = os.urandom(32), os.urandom(32)
            other = LocalWrappingKey([os.urandom(32)])
            yield Kept(LocalWrappingKey([one]), other, lambda: LocalWrappingKey([two, one]))
        case "vault":
            with vault_server.running() as first, vault_server.running() as second:
                yield Kept(
                    _vault(first),
                    _vault(second),
                    partial(_rotated_vault, first),
                    _vault("http://127.0.0.1:1"),
                )
        case "pkcs11":
            hsm = request.getfixturevalue("hsm")
            yield Kept(
                _pkcs11(hsm, "one"),
                _pkcs11(hsm, "two"),
                partial(_pkcs11, hsm, "two", "one"),
                _pkcs11(hsm, "one", token="of nobody"),
            )
        case "aws":
            moto = request.getfixturevalue("moto")
            place = KmsKey(moto.key(), endpoint=moto.url)
            yield Kept(
                _aws(place),
                _aws(replace(place, arn=moto.key())),
                partial(_rotated_aws, moto, place),
                _aws(replace(place, endpoint="http://127.0.0.1:1")),
            )


def _vault(address: str, token: str = vault.TOKEN) -> VaultWrappingKey:
    return master_of(VaultTransitSection.model_validate({"address": address, "token": token}))


def _rotated_vault(address: str) -> WrappingKey:
    vault.rotate(address)
    return _vault(address)


def _pkcs11(hsm: SoftHsm, *labels: str, token: str = "windlass") -> Pkcs11WrappingKey:
    return Pkcs11WrappingKey(TokenKey(hsm.module, token, labels), lambda: softhsm.PIN)


def _aws(place: KmsKey) -> AwsWrappingKey:
    return AwsWrappingKey(place, BlockingCalls("AWS KMS", threads=2))


def _rotated_aws(moto: Moto, place: KmsKey) -> WrappingKey:
    moto.kms.rotate_key_on_demand(KeyId=place.arn)
    return _aws(place)


async def test_what_it_wraps_it_unwraps(kept: Kept) -> None:
    wrapped = await kept.key.wrap(ROOT, context="here")
    assert ROOT.hex() not in wrapped
    assert await kept.key.unwrap(wrapped, context="here") == ROOT
    assert await kept.key.wrap(ROOT, context="here") != wrapped


async def test_another_key_does_not_unwrap_it(kept: Kept) -> None:
    with pytest.raises(ValueError):
        await kept.other.unwrap(await kept.key.wrap(ROOT, context="here"), context="here")


async def test_another_context_does_not_unwrap_it(kept: Kept) -> None:
    wrapped = await kept.key.wrap(ROOT, context="here")
    with pytest.raises(ValueError):
        await kept.key.unwrap(wrapped, context="there")
    assert await kept.key.unwrap(wrapped, context="here") == ROOT


async def test_text_that_was_changed_or_is_of_another_kind_is_refused(kept: Kept) -> None:
    wrapped = await kept.key.wrap(ROOT, context="here")
    last = "A" if wrapped[-6] != "A" else "B"
    changed = f"{wrapped[:-6]}{last}{wrapped[-5:]}"
    for wrong in (changed, "", "AAAA", "vault:v1:AAAA", "bound:vault:v1:", "pkcs11:one:", "aws:"):
        with pytest.raises(ValueError):
            await kept.key.unwrap(wrong, context="here")


async def test_a_key_rotates_and_opens_what_it_wrapped_before(kept: Kept) -> None:
    before = await kept.key.wrap(ROOT, context="here")
    rotated = kept.rotated()
    assert await rotated.unwrap(before, context="here") == ROOT
    assert await rotated.unwrap(await rotated.wrap(ROOT, context="x"), context="x") == ROOT


async def test_a_keeper_that_is_away_is_no_wrong_key(kept: Kept) -> None:
    if kept.unreachable is None:
        return
    wrapped = await kept.key.wrap(ROOT, context="here")
    with pytest.raises(OSError):
        await kept.unreachable.wrap(ROOT, context="here")
    with pytest.raises(OSError):
        await kept.unreachable.unwrap(wrapped, context="here")


async def test_vault_that_refuses_is_no_wrong_key() -> None:
    with vault.running() as address, pytest.raises(OSError, match="403"):
        await _vault(address, token="s.other").wrap(ROOT, context="here")


async def test_vault_opens_what_an_earlier_release_bound_to_nothing() -> None:
    with vault.running() as address:
        bare = (await _vault(address).wrap(ROOT, context="")).removeprefix("bound:")
        assert await _vault(address).unwrap(bare, context="windlass root key") == ROOT


async def test_a_token_that_was_taken_out_works_again_when_it_is_back(hsm: SoftHsm) -> None:
    key = _pkcs11(hsm, "one")
    wrapped = await key.wrap(ROOT, context="here")
    with hsm.away(), pytest.raises(OSError, match="cannot be used"):
        await key.unwrap(wrapped, context="here")
    assert await key.unwrap(wrapped, context="here") == ROOT


async def test_a_wrong_pin_is_tried_once_and_a_readable_key_is_refused(hsm: SoftHsm) -> None:
    hsm.token("other")
    hsm.key("other", "readable", readable=True)
    place = TokenKey(hsm.module, "other", ("readable",))
    wrong = Pkcs11WrappingKey(place, lambda: "0000")
    for expected in ("PinIncorrect", "does not accept the PIN"):
        with pytest.raises(OSError, match=expected):
            await wrong.wrap(ROOT, context="here")
    with pytest.raises(OSError, match="can be read out"):
        await Pkcs11WrappingKey(place, lambda: softhsm.PIN).wrap(ROOT, context="here")


async def test_without_its_library_a_token_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    key = Pkcs11WrappingKey(TokenKey(Path("/m.so"), "t", ("k",)), lambda: "1")
    with pytest.raises(OSError, match=r"install windlass\[pkcs11\]"):
        await key.wrap(ROOT, context="here")


async def test_a_role_is_assumed_with_its_external_id(moto: Moto) -> None:
    place = KmsKey(
        moto.key(),
        endpoint=moto.url,
        sts_endpoint=moto.url,
        role_arn=moto_server.ROLE,
        external_id="org-1",
    )
    key = _aws(place)
    assert await key.unwrap(await key.wrap(ROOT, context="x"), context="x") == ROOT


async def test_a_call_that_blocks_ends_at_its_deadline() -> None:
    release = threading.Event()
    calls = BlockingCalls("a device", threads=1, seconds=0.05)
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="a device does not answer"):
                await calls.run(release.wait)
    finally:
        release.set()
    assert await BlockingCalls("a device", threads=1).run(lambda: 1) == 1
