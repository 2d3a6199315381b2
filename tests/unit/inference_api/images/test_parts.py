"""Images of messages: which are taken, what names each that is not, and where they are."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.inference_api.errors import ApiError
from windlass.inference_api.images.parts import (
    IMAGE_URL_LENGTH,
    MAX_IMAGES,
    MAX_LOOKED_AT,
    image_places,
)
from windlass.inference_api.kinds import body_check

CHATS = "/v1/chat/completions"
DATA = "data:image/png;base64,aGk="


def image(url: Any = DATA, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **fields}


def body(*parts: Any, role: str = "user") -> bytes:
    said = {"role": "user", "content": "hi"}
    return json.dumps({"model": "m", "messages": [said, {"role": role, "content": parts}]}).encode()


def refusal(kind: str, content: bytes) -> tuple[str | None, str | None]:
    with pytest.raises(ApiError) as refused:
        body_check(kind).refuse(CHATS, content)
    return refused.value.param, refused.value.code


@pytest.mark.parametrize("url", [DATA, DATA.replace("png", "jpg"), "https://a.example/b?c=d"])
@pytest.mark.parametrize("detail", [{}, {"detail": "low"}, {"detail": None}])
def test_an_image_of_a_user_is_taken(url: str, detail: dict[str, Any]) -> None:
    part = {"type": "image_url", "image_url": {"url": url, **detail}}
    body_check("vllm").refuse(CHATS, body({"type": "text", "text": "what?"}, part))


@pytest.mark.parametrize(
    ("part", "field", "code"),
    [
        # vLLM would answer by the image of whoever has sent one of this name.
        (image(uuid="theirs"), ".uuid", "unknown_parameter"),
        ({"type": "image_url", "uuid": "theirs"}, ".uuid", "unknown_parameter"),
        ({"type": "image_url", "image_url": None}, ".image_url", "invalid_value"),
        ({"type": "image_url", "image_url": DATA}, ".image_url", "invalid_value"),
        (
            {"type": "image_url", "image_url": {"url": DATA, "uuid": "x"}},
            ".image_url.uuid", "unknown_parameter",
        ),
        (
            {"type": "image_url", "image_url": {"url": DATA, "detail": "huge"}},
            ".image_url.detail", "invalid_value",
        ),
        (image(None), ".image_url.url", "invalid_value"),
        (image("file:///etc/passwd"), ".image_url.url", "invalid_value"),
        (image("http://a.example"), ".image_url.url", "invalid_value"),
        (image("HTTPS://a.example"), ".image_url.url", "invalid_value"),
        (image("https://a.example/" + "x" * IMAGE_URL_LENGTH), ".image_url.url", "invalid_value"),
        (image("data:image/png,abc"), ".image_url.url", "invalid_value"),
        (image("DATA:image/png;base64,aGk="), ".image_url.url", "invalid_value"),
        (image("data:image/svg+xml;base64,aGk="), ".image_url.url", "invalid_value"),
        (image("data:text/html;base64,aGk="), ".image_url.url", "invalid_value"),
        ({"type": "image_embeds", "image_embeds": "x"}, ".type", "unsupported_parameter"),
        ({"type": "image_pil", "image_pil": "x"}, ".type", "unsupported_parameter"),
        ({"type": "video_url", "video_url": {"url": DATA}}, ".type", "unsupported_parameter"),
        ({"type": "input_audio", "input_audio": {}}, ".type", "unsupported_parameter"),
        ({"type": "text", "text": "x", "image_url": DATA}, ".image_url", "unknown_parameter"),
        ({"image_url": {"url": DATA}}, ".type", "unsupported_parameter"),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused_by_its_place(part: Any, field: str, code: str) -> None:
    asked = body({"type": "text", "text": "what?"}, part)
    assert refusal("vllm", asked) == (f"messages[1].content[1]{field}", code)


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
def test_users_alone_send_images(role: str) -> None:
    found = refusal("vllm", body(image(), role=role))
    assert found == ("messages[1].content[0].type", "unsupported_parameter")


def test_a_request_has_so_many_images() -> None:
    body_check("vllm").refuse(CHATS, body(*[image()] * MAX_IMAGES))
    assert refusal("vllm", body(*[image()] * (MAX_IMAGES + 1))) == ("messages", "invalid_value")


@pytest.mark.parametrize("kind", ["builtin", "llamacpp", "sglang", "adopted", "unknown"])
def test_other_kinds_refuse_them_too(kind: str) -> None:
    found = refusal(kind, body(image()))
    assert found == ("messages[1].content[0].type", "unsupported_parameter")


def test_no_prompt_of_tokenize_has_one() -> None:
    asked = json.loads(body(image()))
    with pytest.raises(ApiError):
        body_check("vllm").refuse("/tokenize", json.dumps(asked).encode())


@pytest.mark.parametrize(
    "messages",
    [b"", b"null", b"{}", b"[", b"[1]", b'[{"content":1}]', b'[{"content":["image_url"]}]',
     b'[{"content":[[{"type":"image_url"}]]}]', b'[{"content":' + b"[" * 5000 + b'"image_url"']
)  # fmt: skip
def test_what_is_no_conversation_has_no_images(messages: bytes) -> None:
    assert image_places(messages) == ()


KEYS = st.sampled_from(["type", "text", "image_url", "url", "detail", "uuid", "role", "content"])
VALUES = st.sampled_from([None, 1, "", "text", "image_url", "user", DATA, "https://a.example/x"])
PARTS = st.one_of(
    st.just({"type": "text", "text": "x"}),
    st.just(image()),
    st.just(image("https://a.example/x")),
    st.dictionaries(KEYS, st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=2))),
    VALUES,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "system", "assistant"]),
            "content": st.one_of(st.text(max_size=9), st.lists(PARTS, max_size=4)),
        }
    ),
    max_size=3,
)


def spelled(text: str, escaped: bool) -> bytes:
    """JSON, some of whose words are written with escapes."""
    return (text.replace("_", "\\u005f") if escaped else text).encode()


def strings(value: Any) -> Iterator[Any]:
    for message in value:
        content = message["content"]
        yield from content if isinstance(content, list) else ()


@given(MESSAGES, st.booleans(), st.sampled_from([None, 2]))
def test_no_image_passes_that_is_not_found(
    messages: list[dict[str, Any]], escaped: bool, indent: int | None
) -> None:
    """What the check lets through, and nothing else, is fetched and written anew."""
    asked = spelled(json.dumps({"model": "m", "messages": messages}, indent=indent), escaped)
    places = image_places(spelled(json.dumps(messages, indent=indent), escaped))
    for place in places:
        assert messages[place.message]["content"][place.part]["type"] == "image_url"
    try:
        body_check("vllm").refuse(CHATS, asked)
    except ApiError:
        return
    images = [one for one in strings(messages) if one["type"] == "image_url"]
    assert len(places) == len(images)
    assert all(one["type"] == "text" for one in strings(messages) if one not in images)


def test_of_what_is_no_list_of_objects_little_is_read() -> None:
    """Else a request of megabytes would hold up all others."""
    for element in ("0", "{}", '{"content": [0]}'):
        body = f'["image_url", {element}{f", {element}" * MAX_LOOKED_AT}]'.encode()
        assert image_places(body) == ()
    many = f'[{{"content": [{{"type": "image_url"}}{", {}" * MAX_LOOKED_AT}]}}]'.encode()
    with pytest.raises(ApiError, match="more than 50,000"):
        image_places(many)
