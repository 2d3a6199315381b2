"""A front door whose tenants keep keys in AWS KMS (moto), Vault (a fake) and SoftHSM."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.fakes import sts
from tests.support.fakes.sts import Sts
from tests.support.keepers import moto_server, softhsm
from tests.support.keepers.moto_server import Moto
from tests.support.keepers.softhsm import SoftHsm
from tests.support.services.front import Front, running_front


@dataclass
class Keepers:
    """What tenants' keys are kept in."""

    moto: Moto
    sts: Sts
    hsm: SoftHsm

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "cache_seconds": 1,
            "allowed_networks": ["127.0.0.0/8"],
            "allow_http": True,
            "kms_endpoint": self.moto.url,
            "sts_endpoint": self.sts.url,
            "tokens": {
                "vault-room": {
                    "module": str(self.hsm.module),
                    "token": "tenants",
                    "pin": softhsm.PIN,
                    "organizations": [],
                }
            },
        }

    def aws(self, external_id: str) -> dict[str, Any]:
        """Parameters of a new key that trusts an external id."""
        self.sts.trusted.add(external_id)
        place = {"kms_arn": self.moto.key(), "role_arn": moto_server.ROLE}
        return {"name": "ours", "type": "aws", "external_id": external_id, **place}


@pytest.fixture(scope="session")
def keepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keepers]:
    hsm = softhsm.made(tmp_path_factory.mktemp("tokens"))
    hsm.token("tenants")
    hsm.key("tenants", "acme")
    with (
        moto_server.running() as moto,
        sts.running() as trusting,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in {**moto_server.CREDENTIALS, **hsm.environment}.items():
            patch.setenv(name, value)
        yield Keepers(moto, trusting, hsm)


@pytest.fixture
async def front(database_url: str, tmp_path: Path, keepers: Keepers) -> AsyncIterator[Front]:
    async with running_front(
        database_url, tmp_path / "data", external_keys=keepers.settings
    ) as front:
        yield front


@pytest.fixture
async def admin(front: Front) -> AsyncIterator[AsyncOrganization]:
    async with administering(front) as client:
        yield client


@pytest.fixture
async def organization_id(front: Front) -> str:
    async with front.http() as http:
        return str((await http.get("/v1/me")).json()["principal"]["organization_id"])


@pytest.fixture
async def other(front: Front) -> AsyncIterator[AsyncOrganization]:
    """Another organization's administrator."""
    async with administering(front, await foreign_key(front)) as client:
        yield client
