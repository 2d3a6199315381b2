"""An installation that hands mail to a real SMTP server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.front import running_front
from tests.support.services.mail_server import MailServer, running_mail_server
from tests.support.services.member_keys import Key


@pytest.fixture
def server() -> Iterator[MailServer]:
    with running_mail_server() as running:
        yield running


@pytest.fixture
async def owner(database_url: str, tmp_path: Path, server: MailServer) -> AsyncIterator[Key]:
    """The first organization's owner."""
    sections: dict[str, Any] = {
        "http": {"public_url": "https://windlass.example"},
        "mail": {
            "host": "127.0.0.1",
            "port": server.port,
            "tls": "none",
            "sender": "windlass@example.com",
        },
    }
    async with running_front(database_url, tmp_path / "data", **sections) as front:
        yield Key(front, "", front.owner_key, {})
