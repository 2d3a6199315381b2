"""What every test may ask for."""

from collections.abc import Iterator

import pytest
from tests.servers import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real Postgres, one for the session."""
    with postgres.start_postgres() as url:
        yield url
