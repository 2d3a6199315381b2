"""A front door that believes a proxy on this machine, and two tenants."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.clients.openai_admin import foreign_key
from tests.support.services.front import Front, running_front
from tests.support.services.member_keys import Key


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    http = {"trusted_proxies": ["127.0.0.1/32"]}
    async with running_front(database_url, tmp_path / "data", http=http) as front:
        yield front


@pytest.fixture
async def platform(front: Front) -> Key:
    """The platform's administrator, of the default organization."""
    return Key(front, "", front.owner_key, {})


@pytest.fixture
async def owner(front: Front) -> Key:
    """The owner of another organization."""
    return Key(front, "", await foreign_key(front), {})
