"""Requests to a hub, and the files of a repository that make a model."""

import json
import string
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes.trackers import Site
from tests.support.processes.windlass import free_port

from windlass.core.errors import InvalidArgument
from windlass.models.fetches.hub import (
    Hub,
    HubAway,
    HubRefuses,
    _Entry,
    model_files,
    repository_of,
    revision_of,
    session,
)

COMMIT = "a" * 40
_NAMES = st.text(string.ascii_letters + string.digits + "._-/:@ \n%?#", max_size=60)


@given(_NAMES)
def test_a_source_is_two_plain_names(text: str) -> None:
    try:
        found = repository_of(f"hf://{text}")
    except InvalidArgument:
        return
    user, name = found.split("/")
    for part in (user, name):
        assert part[0].isalnum()
        assert set(part) <= set(string.ascii_letters + string.digits + "._-")
    assert ".." not in found


@given(_NAMES)
def test_a_revision_leads_nowhere_else(text: str) -> None:
    try:
        found = revision_of(text)
    except InvalidArgument:
        return
    assert not set(found) & set(":@ \n%?#")
    assert ".." not in found
    assert not found.startswith("/")


def test_no_revision_is_the_main_one() -> None:
    assert revision_of("") == "main"
    assert revision_of("refs/pr/1") == "refs/pr/1"


def chosen(*paths: str) -> list[str]:
    entries = [_Entry(type="file", path=path, size=1) for path in paths]
    return [file.path for file in model_files([*entries, _Entry(type="directory", path="onnx")])]


def test_what_a_model_is_loaded_from() -> None:
    assert chosen("config.json", "model.safetensors", "x.py", "a/b.json", "LICENSE") == [
        "LICENSE",
        "config.json",
        "model.safetensors",
    ]
    # Alone they are the weights.
    assert chosen("consolidated.safetensors") == ["consolidated.safetensors"]
    with pytest.raises(HubRefuses, match="no safetensors"):
        chosen("config.json", "pytorch_model.bin")


@pytest.fixture
async def sites() -> AsyncIterator[list[Site]]:
    made = [Site(), Site()]
    yield made
    for site in made:
        await site.stop()


async def test_a_store_that_the_hub_leads_to_is_shown_no_token(sites: list[Site]) -> None:
    shown: list[str | None] = []

    async def store(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        return web.Response(body=b"weights")

    sites[1].app.router.add_get("/blob", store)
    url = await sites[1].start()

    async def lead(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        raise web.HTTPFound(f"{url}/blob")

    sites[0].app.router.add_get("/{path:.*}", lead)
    async with session() as http:
        hub = Hub(await sites[0].start(), http)
        content = b"".join(
            [chunk async for chunk in hub.read("acme/a", COMMIT, "model.safetensors", "hf_x")]
        )
    assert content == b"weights"
    assert shown == ["Bearer hf_x", None]


async def test_a_listing_that_comes_in_pieces_is_read_whole(sites: list[Site]) -> None:
    names = [f"model-{number:05}.safetensors" for number in range(900)]

    async def answer(request: web.Request) -> web.StreamResponse:
        if "/revision/" in request.path:
            return web.json_response({"sha": COMMIT})
        response = web.StreamResponse()
        await response.prepare(request)
        entries = json.dumps([{"type": "file", "path": name, "size": 1} for name in names])
        for start in range(0, len(entries), 10_000):
            await response.write(entries[start : start + 10_000].encode())
        return response

    sites[0].app.router.add_get("/{path:.*}", answer)
    await sites[1].start()
    async with session() as http:
        snapshot = await Hub(await sites[0].start(), http).snapshot("acme/a", "main", "")
    assert [file.path for file in snapshot.files] == names


async def test_a_hub_that_is_away_is_named_by_its_address() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    async with session() as http:
        with pytest.raises(HubAway, match=f"^{url} could not be reached: Connection refused$"):
            await Hub(url, http).snapshot("acme/a", "main", "token")
        with pytest.raises(HubAway, match=r"^http://hub\.invalid could not be reached: its name"):
            await Hub("http://hub.invalid/mirror", http).snapshot("acme/a", "main", "")


@pytest.mark.parametrize("said", ['{"sha": "main"}', "{}", "<html>"])
async def test_an_answer_that_is_none_is_tried_again(sites: list[Site], said: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=said)

    sites[0].app.router.add_get("/{path:.*}", answer)
    await sites[1].start()
    async with session() as http:
        hub = Hub(await sites[0].start(), http)
        with pytest.raises(HubAway):
            await hub.snapshot("acme/a", "main", "")
