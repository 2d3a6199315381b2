"""Bad requests are refused in OpenAI's shape, by the name of what is wrong."""

import json
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from tests.support.processes.engine import RunningEngine

from windlass.inference_api.parameters import REFUSED, WITHOUT_EFFECT

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
        ({"tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": True}, "parallel_tool_calls"),
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
        assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")


def test_tokenize_counts_as_a_chat_does(engine: RunningEngine) -> None:
    with engine.http() as http:
        chat = http.post(
            "/v1/chat/completions", json={"model": "toy", "messages": HELLO, "max_tokens": 1}
        )
        counted = http.post("/tokenize", json={"messages": HELLO}).json()
        plain = http.post("/tokenize", json={"model": "toy", "prompt": "the fox"}).json()
    assert counted["count"] == len(counted["tokens"]) == chat.json()["usage"]["prompt_tokens"]
    assert plain["max_model_len"] == 512


def ask(engine: RunningEngine, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = {"model": "toy", **fields}
    with engine.http() as http:
        answer = http.post(path, content=json.dumps(body))
    return answer.status_code, answer.json().get("error", {})


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}),
        ("/v1/completions", {"prompt": "fox", "max_tokens": 1}),
        ("/v1/embeddings", {"input": "fox"}),
    ],
)
def test_what_is_unknown_is_refused_by_name(
    engine: RunningEngine, path: str, fields: dict[str, Any]
) -> None:
    status, error = ask(engine, path, **fields, temprature=1)
    assert (status, error["code"], error["param"]) == (400, "unknown_parameter", "temprature")
    assert error["message"] == "Unknown parameter: 'temprature'."


VOCABULARY = 400
# Beyond the vocabulary, and beyond every integer of a machine.
NUMBERS = (-1, 0, 1, 5, 20, 21, VOCABULARY, VOCABULARY + 1, 2**31, 2**63, 2**64, 10**400)


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_beyond_the_vocabulary_are_refused(engine: RunningEngine, number: int) -> None:
    chat: dict[str, Any] = {"messages": HELLO, "max_tokens": 1}
    status, error = ask(engine, "/v1/chat/completions", **chat, logprobs=True, top_logprobs=number)
    assert (status, error.get("param")) in ((200, None), (400, "top_logprobs"))
    assert (status == 200) is (0 <= number <= 20)
    status, error = ask(engine, "/v1/chat/completions", **chat, logprobs=number)
    assert (status, error["param"]) == (400, "logprobs"), "which is true or false there"
    status, error = ask(engine, "/v1/completions", prompt="fox", max_tokens=1, logprobs=number)
    assert (status, error.get("param")) in ((200, None), (400, "logprobs"))
    assert (status == 200) is (0 <= number <= 20)
    for path, field in (("/v1/completions", "prompt"), ("/v1/embeddings", "input")):
        status, error = ask(engine, path, **{field: [number]})
        assert (status == 200) is (0 <= number < VOCABULARY), error
        assert status == 200 or (status, error["param"]) == (400, field)
    status, error = ask(engine, "/v1/completions", prompt="fox", logit_bias={str(number): 1})
    assert (status == 200) is (0 <= number < VOCABULARY), error
    assert status == 200 or (status, error["param"]) == (400, "logit_bias")


def test_what_has_no_effect_is_accepted_and_listed(engine: RunningEngine) -> None:
    given: dict[str, Any] = {
        "user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "metadata": {"a": "b"},
        "prompt_cache_retention": "24h", "prompt_cache_options": {"mode": "implicit"},
        "store": False, "service_tier": "flex", "modalities": ["text"],
        "reasoning_effort": "low", "verbosity": "low",
    }  # fmt: skip
    assert given.keys() == WITHOUT_EFFECT.keys()
    status, error = ask(
        engine, "/v1/chat/completions", messages=HELLO, max_completion_tokens=1, **given
    )
    assert (status, error) == (200, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [("store", True), ("service_tier", "priority"), ("modalities", ["text", "audio"]),
     *((name, {"a": 1}) for name in REFUSED if name != "suffix")],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused(engine: RunningEngine, name: str, value: Any) -> None:
    status, error = ask(engine, "/v1/chat/completions", messages=HELLO, **{name: value})
    assert (status, error["code"], error["param"]) == (400, "unsupported_parameter", name)


def test_one_bound_of_tokens_is_enough(engine: RunningEngine) -> None:
    status, error = ask(
        engine, "/v1/chat/completions", messages=HELLO, max_tokens=1, max_completion_tokens=1
    )
    assert (status, error["param"]) == (400, "max_tokens")


@pytest.mark.parametrize("depth", [100, 900, 5000, 100_000])
def test_deep_json_is_no_fault_of_ours(engine: RunningEngine, depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    for field in (b'"messages": %b', b'"messages": [{"role": "user", "content": %b}]',
                  b'"messages": [], "metadata": %b', b'"messages": [], "chat_template_kwargs": '
                  b'{"a": %b}', b'"messages": [], "tools": [{"type": "function", "function": '
                  b'{"name": "a", "parameters": {"a": %b}}}]'):  # fmt: skip
        with engine.http() as http:
            body = b'{"model": "toy", ' + field % deep + b"}"
            answer = http.post("/v1/chat/completions", content=body)
        assert answer.status_code == 400, answer.text[:300]
