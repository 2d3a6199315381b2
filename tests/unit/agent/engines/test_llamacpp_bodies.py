"""What `llama-server` gets: OpenAI's defaults, and nothing that a client could steer it by."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.inference_api import llamacpp
from windlass.inference_api.errors import ApiError
from windlass.inference_api.requests import parse
from windlass_agent.engines.llamacpp.bodies import (
    SaltedChat,
    SaltedCompletion,
    chat_body,
    completion_body,
    placed,
)

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "act"}}


def chat(**fields: Any) -> dict[str, Any]:
    asked = parse(SaltedChat, msgspec.json.encode(CHAT | fields))
    return chat_body(asked, context=100, renders=frozenset({"tools"}))


def completion(**fields: Any) -> dict[str, Any]:
    body = {"model": "m", "prompt": "hello"} | fields
    return completion_body(parse(SaltedCompletion, msgspec.json.encode(body)), context=100)


def test_defaults_are_openai_s() -> None:
    body = chat(temperature=None)
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, 0, 0.0)
    assert "max_tokens" not in body
    assert completion()["max_tokens"] == 16
    assert chat(temperature=0, top_k=-1)["temperature"] == 0
    assert chat(max_completion_tokens=7)["max_tokens"] == 7


def test_a_token_is_a_number_however_it_is_written() -> None:
    assert chat(logit_bias={"1_0": 5, " 7": -1})["logit_bias"] == ((10, 5.0), (7, -1.0))


@given(st.integers(-(2**70), 2**70).filter(lambda seed: -(2**63) <= seed < 2**63))
def test_no_seed_stands_for_chance(seed: int) -> None:
    assert 0 <= chat(seed=seed)["seed"] < 2**32 - 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lora", [{"id": 0, "scale": 1}]), ("id_slot", 0), ("cache_prompt", True),
        ("grammar", "x"), ("n_probs", 5), ("samplers", []), ("timings_per_token", True),
        ("n", 2), ("min_tokens", 3), ("chat_template", "x"), ("max_tokens", 101),
    ],
)  # fmt: skip
def test_what_it_does_not_honour_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ApiError) as refused:
        chat(**{field: value})
    assert refused.value.param == field


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_numbers_that_the_template_cannot_have_are_refused(number: int) -> None:
    for held in ({"a": number}, {"a": [{"b": [number]}]}):
        body = json.dumps(CHAT | {"chat_template_kwargs": held}).encode()
        with pytest.raises(ApiError) as refused:
            llamacpp.check("/v1/chat/completions", body)
        assert (refused.value.status, refused.value.param) == (400, "chat_template_kwargs")
    most = {"a": [2**63 - 1, -(2**63), True, 0.5, "x", None]}
    assert chat(chat_template_kwargs=most)["chat_template_kwargs"] == most


@pytest.mark.parametrize("field", ["cache_salt", "priority"])
def test_the_gateway_alone_writes_what_is_its_own(field: str) -> None:
    with pytest.raises(ApiError) as refused:
        llamacpp.check("/v1/chat/completions", msgspec.json.encode(CHAT | {field: None}))
    assert refused.value.param == field
    chat(cache_salt="0a", priority=0)


@pytest.mark.parametrize(
    ("choice", "names", "said"),
    [
        (None, ["look", "act"], "auto"),
        ("required", ["look", "act"], "required"),
        ({"type": "function", "function": {"name": "act"}}, ["act"], "required"),
        ("none", [], None),
    ],
)
def test_a_tool_that_is_chosen_by_name_is_the_only_one(
    choice: object, names: list[str], said: str | None
) -> None:
    body = chat(tools=[TOOL, OTHER], tool_choice=choice)
    assert [tool["function"]["name"] for tool in body.get("tools", ())] == names
    assert body.get("tool_choice") == said


def test_what_the_template_does_not_show_is_refused() -> None:
    asked = parse(SaltedChat, msgspec.json.encode(CHAT | {"tools": [TOOL]}))
    with pytest.raises(ApiError) as refused:
        chat_body(asked, context=100, renders=frozenset())
    assert refused.value.param == "tools"
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = [*CHAT["messages"], {"role": "assistant", "tool_calls": [call]}]
    with pytest.raises(ApiError) as refused:
        chat(messages=[*said, {"role": "tool", "tool_call_id": "1", "content": "x"}])
    assert refused.value.param == "messages[1]"


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("a", "a"), (["a"], "a"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2])],
)
def test_one_prompt_is_read_in_every_spelling(prompt: object, read: object) -> None:
    assert completion(prompt=prompt)["prompt"] == read


@pytest.mark.parametrize("prompt", [[], ["a", "b"], [[1], [2]], [1, "a"], [-1], [2**31], [[]]])
def test_several_prompts_and_no_ids_are_refused(prompt: object) -> None:
    with pytest.raises(ApiError) as refused:
        completion(prompt=prompt)
    assert refused.value.param == "prompt"


def test_every_adapter_is_named_so_that_none_is_left_from_before() -> None:
    body = placed(chat(), slot=3, continued=False, adapter=1, adapters=3)
    assert (body["id_slot"], body["cache_prompt"]) == (3, False)
    assert [one["scale"] for one in body["lora"]] == [0.0, 1.0, 0.0]
    base = placed(chat(), slot=0, continued=True, adapter=None, adapters=2)
    assert [one["scale"] for one in base["lora"]] == [0.0, 0.0]
