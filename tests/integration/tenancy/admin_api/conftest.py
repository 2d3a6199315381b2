"""A front door and OpenAI's administration client."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering
from tests.support.services.front import Front, running_front


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


@pytest.fixture
async def admin(front: Front) -> AsyncIterator[AsyncOrganization]:
    async with administering(front) as client:
        yield client
