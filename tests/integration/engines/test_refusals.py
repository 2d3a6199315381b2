"""Bad requests are refused in OpenAI's shape, by the name of what is wrong."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from tests.servers.engine import RunningEngine

pytestmark = pytest.mark.torch

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"logit_bias": {"fox": 1}}, "logit_bias"),
        ({"logit_bias": {"99999": 1}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"structured_outputs": {"json": {}}}, "structured_outputs"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 4}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "user", "content": "refuse me"}]}, "messages"),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
    ],
)
async def test_a_bad_value_is_named(client: AsyncOpenAI, extra: dict[str, Any], param: str) -> None:
    body = {"model": "toy", "messages": HELLO, **extra}
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.post("/chat/completions", body=body, cast_to=object)
    assert refusal.value.param == param
    assert refusal.value.type == "invalid_request_error"
    assert refusal.value.code
    assert refusal.value.request_id


async def test_a_prompt_that_does_not_fit_is_told_with_its_size(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="512 tokens") as refusal:
        await client.chat.completions.create(
            model="toy", messages=[{"role": "user", "content": "fox " * 600}]
        )
    assert refusal.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as refusal:
        await client.completions.create(model="toy", prompt="fox", max_tokens=512)
    assert refusal.value.code == "context_length_exceeded"
    fits = await client.completions.create(
        model="toy", prompt=[5] * 500, max_tokens=12, extra_body={"ignore_eos": True}
    )
    assert fits.usage
    assert fits.usage.total_tokens == 512


async def test_an_unknown_model_is_404(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        await client.chat.completions.create(model="other", messages=HELLO)
    assert (refusal.value.code, refusal.value.param) == ("model_not_found", "model")


async def test_a_model_without_a_chat_template_says_so(narrow_client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no chat template") as refusal:
        await narrow_client.chat.completions.create(model="toy", messages=HELLO)
    assert refusal.value.code == "chat_template_missing"


def test_what_is_no_json_or_no_route_has_the_same_shape(engine: RunningEngine) -> None:
    with engine.http() as http:
        broken = http.post(
            "/v1/chat/completions", content=b'{"model":', headers={"x-request-id": "r1"}
        )
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")
        assert broken.headers["x-request-id"] == "r1"
        missing = http.post("/v1/chat/completions", json={"messages": HELLO})
        assert missing.json()["error"]["param"] == "model"
        nowhere = http.get("/v1/nothing")
        assert (nowhere.status_code, nowhere.json()["error"]["type"]) == (404, "not_found_error")
        large = http.post("/v1/completions", content=b"x" * (33 * 2**20))
        assert (large.status_code, large.json()["error"]["code"]) == (413, "http_413")


def test_tokenize_counts_as_a_chat_does(engine: RunningEngine) -> None:
    with engine.http() as http:
        chat = http.post(
            "/v1/chat/completions", json={"model": "toy", "messages": HELLO, "max_tokens": 1}
        )
        counted = http.post("/tokenize", json={"messages": HELLO}).json()
        plain = http.post("/tokenize", json={"model": "toy", "prompt": "the fox"}).json()
    assert counted["count"] == len(counted["tokens"]) == chat.json()["usage"]["prompt_tokens"]
    assert plain["max_model_len"] == 512
