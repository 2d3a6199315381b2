"""A front with the tuning service and a trainer that computes nothing."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.services.front import Front, running_front

BASE_MODEL = "toy"


@pytest.fixture
async def front(
    database_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Front]:
    """Yields a front; a test may have other settings of tuning, and quotas."""
    tuning = {"trainer": "null", "base_models": [BASE_MODEL]} | getattr(request, "param", {})
    quotas = tuning.pop("quotas", {})
    async with running_front(database_url, tmp_path / "data", tuning=tuning, quotas=quotas) as made:
        yield made
