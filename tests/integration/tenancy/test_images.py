"""Images of chats on their way to an engine: fetched, checked, kept apart, and counted."""

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from aiohttp import web
from tests.support.fakes.image_host import LOOPBACK, PNG, ImageHost, image_host
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.services.front_usage import used
from tests.support.waiting import until

from windlass.gateway import module
from windlass.gateway.inference.images.fetching import ImageFetcher
from windlass.inference_api.images.bounds import MAX_PIXELS

ASK: dict[str, Any] = {"type": "text", "text": "what is it? 2.50"}
# Fewer than the bytes of an image in it stand for.
LIMIT = 8000


def data(content: bytes = PNG, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def chat(*urls: str, **detail: str) -> Any:
    images = [{"type": "image_url", "image_url": {"url": url, **detail}} for url in urls]
    said = {"role": "system", "content": "Be short."}
    return [said, {"role": "user", "content": [ASK, *images], "name": "kim"}]


def large(width: int, height: int) -> bytes:
    """An image of which a decoder would make so many pixels."""
    return PNG[:16] + struct.pack(">II", width, height) + PNG[24:]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[ImageHost]:
    async with image_host(tmp_path) as host:
        yield host


@pytest.fixture
async def front(
    database_url: str, tmp_path: Path, host: ImageHost, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Front]:
    # It trusts the certificate of the host of the test's own, beside the system's.
    monkeypatch.setattr(module, "ImageFetcher", partial(ImageFetcher, tls=host.trust))
    inference = {"media_hosts": [host.name], "media_networks": list(map(str, LOOPBACK))}
    limits = {"tokens_per_minute": LIMIT}
    async with running_front(
        database_url, tmp_path / "data", inference=inference, limits=limits
    ) as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    async with running_engine() as engine:
        front.board.pin("toy", engine.address, engine="vllm", cache_salt=True, vision=True)
        front.board.pin("blind", engine.address, engine="vllm", cache_salt=True)
        front.board.pin("builtin", engine.address, vision=True)
        yield engine


async def other_organization(front: Front) -> str:
    """The key of a member of another organization's project."""
    async with front.http() as http:
        made = (await http.post("/v1/organizations", json={"title": "Bolt"})).json()["id"]
        role = {"name": "o", "role": "organization_owner"}
        headers = {"OpenAI-Organization": made}
        owner = (await http.post("/v1/api_keys", json=role, headers=headers)).json()["value"]
    async with front.http(owner) as http:
        project = (await http.post("/v1/projects", json={"title": "Theirs"})).json()["id"]
        role = {"name": "m", "role": "project_member", "project_id": project}
        return str((await http.post("/v1/api_keys", json=role)).json()["value"])


async def test_an_engine_gets_bytes_that_are_named_by_whose_they_are(
    front: Front, engine: Engine, host: ImageHost
) -> None:
    messages = chat(f"{host.url}/to?where=/image", data(), detail="low")
    for key in (front.owner_key, await other_organization(front)):
        await front.openai(key).chat.completions.create(model="toy", messages=messages)
    seen = []
    for asked in engine.requests:
        system, user = asked["messages"]
        assert system == messages[0]
        text, *images = user.pop("content")
        assert text == ASK
        assert user == {"role": "user", "name": "kim"}
        # The same image is the same to the engine, however it was sent.
        assert images[0] == images[1]
        assert images[0].keys() == {"type", "image_url", "uuid"}
        assert images[0]["image_url"] == {"url": data()}
        seen.append((asked["cache_salt"], images[0]["uuid"]))
    ours, theirs = seen
    # What an engine keeps of an image, it finds by this.
    assert ours[1] != theirs[1]
    assert len({*ours, *theirs}) == 4
    assert len(host.asked) == 4


async def test_what_is_no_image_reaches_no_engine(
    front: Front, engine: Engine, host: ImageHost
) -> None:
    create = front.openai().chat.completions.create
    refused: list[tuple[list[str], int, str, str]] = [
        ([data(), "https://a.example/x"], 2, "host_not_allowed", "a.example is none"),
        ([f"https://localhost:{host.port}/image"], 1, "host_not_allowed", "listed hosts"),
        ([f"{host.url}/to?where=https://10.0.0.1/"], 1, "host_not_allowed", "10.0.0.1 is none"),
        ([f"{host.url}/none"], 1, "image_not_fetched", "with the status 404"),
        ([f"{host.url}/endless"], 1, "image_not_fetched", "more than 16777216 bytes"),
        ([data(b"GIF89a")], 1, "invalid_image", "ends within its header"),
        ([data(b"<svg/>")], 1, "invalid_image", "no PNG, JPEG, WebP or GIF"),
        ([data(kind="image/webp")], 1, "invalid_image", "is image/png, not image/webp"),
        ([data() + "*"], 1, "invalid_image", "not in base64"),
        ([data(large(60_000, 60_000))], 1, "invalid_image", "60000 x 60000"),
        ([data(large(MAX_PIXELS // 2, 2))] * 3, 3, "invalid_image", "together at most"),
    ]
    for urls, place, code, why in refused:
        with pytest.raises(openai.BadRequestError, match=why) as error:
            await create(model="toy", messages=chat(*urls))
        assert error.value.code == code
        assert error.value.param == f"messages[1].content[{place}].image_url.url"
    for model in ("blind", "builtin"):
        with pytest.raises(openai.BadRequestError, match=f"`{model}` reads no images") as error:
            await create(model=model, messages=chat(f"{host.url}/image"))
        assert error.value.param == "messages[1].content[1]"
    assert not engine.requests
    assert not any(path.startswith("/image") for path in host.asked)


async def test_images_are_counted_by_their_pixels(front: Front, engine: Engine) -> None:
    # As many bytes as no limit would let pass as text.
    photo = large(1400, 1400) + bytes(4 * LIMIT)
    create = front.openai().chat.completions.create

    async def silent(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"id": "c", "choices": []})

    engine.handler = silent
    raw = await create(model="toy", messages=chat(data(photo)), max_tokens=1)
    assert raw.id == "c"
    text = len(json.dumps(chat(""))) // 4
    counted = await used(front, 1)
    assert counted["num_estimated_requests"] == 1
    assert 0 <= counted["input_tokens"] - 1400 * 1400 // 784 <= text + 50

    async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.Event().wait()
        return web.Response()

    engine.handler = endless
    asking = asyncio.create_task(create(model="toy", messages=chat(data()), stream=True))
    await until(lambda: len(engine.requests) == 2)
    asking.cancel()
    cut = await used(front, 2)
    assert cut["num_estimated_requests"] == 2
    assert cut["input_tokens"] - counted["input_tokens"] >= 256
