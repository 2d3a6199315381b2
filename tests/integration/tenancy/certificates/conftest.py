"""A front door that believes a proxy on this machine, and two tenants."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.environments.client_certificates import Made, made
from tests.support.services.front import Front, running_front
from tests.support.services.member_keys import Key

PROXIES = {"trusted_proxies": ["127.0.0.1/32"]}


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data", http=dict(PROXIES)) as front:
        yield front


@pytest.fixture
async def platform(front: Front) -> Key:
    """The platform's administrator, of the default organization."""
    return Key(front, "", front.owner_key, {})


@pytest.fixture
async def owner(front: Front) -> Key:
    """The owner of another organization."""
    return Key(front, "", await foreign_key(front), {})


@pytest.fixture
async def admin(front: Front, owner: Key) -> AsyncIterator[AsyncOrganization]:
    async with administering(front, owner.secret) as client:
        yield client


@pytest.fixture(scope="session")
def authority() -> Made:
    return made("acme authority", ca=True)


@pytest.fixture(scope="session")
def client(authority: Made) -> Made:
    return made("acme client", authority)
