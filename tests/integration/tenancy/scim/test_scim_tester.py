"""All checks of scim2-tester, which learns from the service itself what there is to check."""

import asyncio
from collections import Counter
from pathlib import Path

from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server
from tests.support.services.scim import Scim, running_directory


def check(scim: Scim) -> list[str]:
    headers = {"Authorization": f"Bearer {scim.key.secret}"}
    with Client(base_url=f"{scim.front.url}/scim/v2", headers=headers, timeout=30) as http:
        results = check_server(SyncSCIMClient(http))
    kinds = Counter(result.status for result in results)
    assert kinds[Status.SUCCESS] >= 70, kinds
    return [
        f"{one.status.name} {one.resource_type} {one.title}: {one.reason}"
        for one in results
        if one.status is not Status.SUCCESS
    ]


async def test_every_check_succeeds(database_url: str, tmp_path: Path) -> None:
    async with running_directory(database_url, tmp_path / "data") as scim:
        assert await asyncio.to_thread(check, scim) == []
