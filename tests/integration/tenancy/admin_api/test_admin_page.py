"""The how-to on administration with openai-python, run as it is printed, and its tables."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import pages
from tests.support.services.front import Front, running_front

from windlass.gateway.openai_admin.scopes import NAMES

PAGE = "how-to/administer-with-openai-python.md"


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    """With its stores where the page says that they are."""
    stores = {"objects": "EU", "database": "EU"}
    async with running_front(database_url, tmp_path / "data", residency=stores) as front:
        yield front


async def test_the_page_on_administration_is_true(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_BASE_URL", front.url)
    monkeypatch.setenv("WINDLASS_API_KEY", front.owner_key)
    scope: dict[str, Any] = {}
    for block in pages.blocks(PAGE, "python"):
        await asyncio.to_thread(exec, block, scope)
    assert scope["project"].residency == "EU_STORAGE_PROCESSING"
    async with front.http(scope["reader"].value) as http:
        assert (await http.get("/v1/files")).status_code == 200
    async with front.http(scope["secret"]) as http:
        assert (await http.get("/v1/files")).status_code == 401


def test_the_table_of_scopes_is_complete() -> None:
    rows = re.findall(
        r"^\| `(api\.[\w.]+)` \| (.*) \|$", (pages.DOCS / PAGE).read_text(), re.MULTILINE
    )
    told = {name: frozenset(re.findall(r"`([\w.]+)`", row)) for name, row in rows}
    assert told.keys() == NAMES.keys()
    assert {name: told[name] for name in NAMES if name != "api.all.read"} == {
        name: NAMES[name] for name in NAMES if name != "api.all.read"
    }
    assert all(name.endswith(".read") for name in NAMES["api.all.read"])
