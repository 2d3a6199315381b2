"""Requests with images as an engine gets them: the images anew, and all else as it was."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fakes.image_host import PNG

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.images.fetching import ImageFetcher
from windlass.gateway.inference.images.inlining import Images
from windlass.gateway.inference.images.room import PROJECT_BYTES
from windlass.inference_api.images.bounds import MAX_BYTES
from windlass.inference_api.images.parts import image_places

URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
IMAGE = {"type": "image_url", "image_url": {"url": URL, "detail": "high"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
CONTENT = st.text(max_size=9) | st.lists(
    st.sampled_from([IMAGE, {"type": "text", "text": "\u00e9 \U0001f600"}]), max_size=3
)
MESSAGE = st.builds(
    lambda fields, content: {**fields, "role": "user", "content": content},
    st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    CONTENT,
)


async def inlined(body: dict[str, Any], salt: str = "a") -> dict[str, Any]:
    images = Images(ImageFetcher((), ()))
    places = image_places(json.dumps(body["messages"]).encode())
    raw = json.dumps(body).encode()
    with images.room.of("proj") as hold:
        written: dict[str, Any] = json.loads(
            (await images.inline(hold, "proj", raw, places, salt)).body
        )
    return written


@given(st.lists(MESSAGE, min_size=1, max_size=3), st.dictionaries(st.text(max_size=5), JSON))
async def test_all_but_images_stays(messages: list[Any], fields: dict[str, Any]) -> None:
    body = {**fields, "messages": messages}
    written = await inlined(body)
    names = set()
    for message in written["messages"]:
        parts = message["content"] if isinstance(message["content"], list) else []
        for part in parts:
            if part["type"] == "image_url":
                names.add(part.pop("uuid"))
                assert part["image_url"] == {"url": URL}
                part["image_url"]["detail"] = "high"
    assert written == body
    assert len(names) <= 1


async def test_names_of_images_differ_by_salt_and_by_bytes() -> None:
    longer = {"url": data(PNG + b"x")}
    body = {"messages": [{"content": [IMAGE, {"type": "image_url", "image_url": longer}]}]}
    names = [
        part["uuid"]
        for salt in "ab"
        for part in (await inlined(body, salt))["messages"][0]["content"]
    ]
    assert len(set(names)) == 4


async def test_images_have_so_many_bytes_together() -> None:
    half = {"type": "image_url", "image_url": {"url": data(PNG + bytes(MAX_BYTES // 2))}}
    with pytest.raises(HttpError, match="more than 16 MiB together") as refused:
        await inlined({"messages": [{"content": [half, half]}]})
    assert refused.value.param == "messages[0].content[1].image_url.url"


async def test_an_image_takes_the_memory_of_four() -> None:
    raw = json.dumps({"messages": [{"content": [IMAGE]}]}).encode()
    places = image_places(json.dumps([{"content": [IMAGE]}]).encode())
    images = Images(ImageFetcher((), ()))
    with images.room.of("proj") as others:
        others.take(PROJECT_BYTES - len(raw) - 4 * len(PNG))
        with images.room.of("proj") as hold:
            await images.inline(hold, "proj", raw, places, "a")
        others.take(1)
        with images.room.of("proj") as hold, pytest.raises(HttpError, match="Too many images"):
            await images.inline(hold, "proj", raw, places, "a")


def data(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"
