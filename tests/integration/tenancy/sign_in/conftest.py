"""An installation, and real issuers that its organizations trust."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.tenancy.sign_in.dns_server import DnsServer, running_dns
from tests.support.environments.oidc_provider import Issuer, running_issuer
from tests.support.processes.windlass import free_port
from tests.support.services.front import running_front
from tests.support.services.member_keys import Key

PEOPLE = {
    "ann": {
        "email": "Ann@a.example",
        "email_verified": True,
        "name": "Ann",
        "groups": ["ml", "organization_owner"],
        "amr": ["pwd", "otp"],
    },
    "bob": {"email": "bob@b.example", "email_verified": True, "name": "<b>Bob</b>"},
    "eve": {"email": "ann@a.example", "email_verified": False},
}


@pytest.fixture(scope="session")
def port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def issuer(port: int) -> Iterator[Issuer]:
    """One for all tests of a process; its people sign in to installations of one port."""
    with running_issuer(f"http://127.0.0.1:{port}/login/callback", PEOPLE) as running:
        yield running


@pytest.fixture
async def dns() -> AsyncIterator[DnsServer]:
    async with running_dns() as server:
        yield server


@pytest.fixture
async def owner(
    database_url: str, tmp_path: Path, port: int, issuer: Issuer, dns: DnsServer
) -> AsyncIterator[Key]:
    sections: dict[str, Any] = {
        "http": {"port": port, "public_url": f"http://127.0.0.1:{port}"},
        "sign_in": {"dns_servers": [f"127.0.0.1#{dns.port}"]},
        "oidc": {"allowed_networks": ["127.0.0.0/8"]},
    }
    async with running_front(database_url, tmp_path / "data", **sections) as front:
        yield Key(front, "", front.owner_key, {})
