"""A front door, its owner, and the events of its audit log."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.services.front import running_front
from tests.support.services.member_keys import Key


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    """No proxy is trusted, as by default."""
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})
