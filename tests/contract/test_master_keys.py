"""One suite for what may wrap the root key: keys of this process, and Vault (a fake of it)."""

import os
from collections.abc import Iterator

import pytest
from tests.support.fakes import vault

from windlass.core.config import VaultTransitSection
from windlass.core.keyring.master import LocalMasterKey, MasterKey
from windlass.core.keyring.vault import VaultMasterKey

ROOT = os.urandom(32)


@pytest.fixture(params=["local", "vault"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[MasterKey, MasterKey]]:
    """A master key, and another that is not it."""
    if request.param == "local":
        yield LocalMasterKey([os.urandom(32)]), LocalMasterKey([os.urandom(32)])
        return
    with vault.running() as one, vault.running() as other:
        yield _vault(one), _vault(other)


def _vault(address: str, token: str = vault.TOKEN) -> VaultMasterKey:
    return VaultMasterKey(VaultTransitSection.model_validate({"address": address, "token": token}))


async def test_what_it_wraps_it_unwraps(pair: tuple[MasterKey, MasterKey]) -> None:
    one, _ = pair
    wrapped = await one.wrap(ROOT)
    assert ROOT.hex() not in wrapped
    assert await one.unwrap(wrapped) == ROOT


async def test_another_key_does_not_unwrap_it(pair: tuple[MasterKey, MasterKey]) -> None:
    one, other = pair
    with pytest.raises(ValueError):
        await other.unwrap(await one.wrap(ROOT))


async def test_text_of_another_kind_is_refused(pair: tuple[MasterKey, MasterKey]) -> None:
    one, _ = pair
    for wrong in ("", "AAAA", "vault:v1:AAAA"):
        with pytest.raises(ValueError):
            await one.unwrap(wrong)


async def test_vault_that_refuses_or_is_away_is_no_wrong_key() -> None:
    with vault.running() as address, pytest.raises(OSError, match="403"):
        await _vault(address, token="s.other").wrap(ROOT)
    with pytest.raises(OSError, match="does not answer"):
        await _vault(address).unwrap("vault:v1:AAAA")
