"""A front door, an issuer, and a service account that its workloads act as."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering
from tests.support.fakes.oidc_issuer import LOOPBACK, OidcIssuer, oidc_issuer
from tests.support.services.front import Front, running_front
from tests.support.services.member_keys import Key
from tests.support.services.workloads import Workloads, accepted, let_in


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    oidc = {"allowed_networks": list(LOOPBACK)}
    async with running_front(database_url, tmp_path / "data", oidc=oidc) as front:
        yield front


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
    async with oidc_issuer() as issuer:
        yield issuer


@pytest.fixture
async def admin(front: Front) -> AsyncIterator[AsyncOrganization]:
    async with administering(front) as client:
        yield client


@pytest.fixture
async def workloads(admin: AsyncOrganization, front: Front, issuer: OidcIssuer) -> Workloads:
    return await let_in(admin, front, issuer)


@pytest.fixture
async def bearers(workloads: Workloads) -> Workloads:
    """The same, whose rule accepts their tokens as they are."""
    return await accepted(workloads)


@pytest.fixture
def front_owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})
