"""SGLang gets what was asked for in its words, and nothing that a client could steer it by."""

from typing import Any

import msgspec
import pytest

from windlass.inference_api import sglang
from windlass.inference_api.errors import ApiError
from windlass.inference_api.kinds import body_check
from windlass.inference_api.requests import parse
from windlass_agent.engines.sglang.bodies import (
    SaltedChat,
    SaltedCompletion,
    chat_body,
    completion_body,
)

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "hello"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "act", "strict": True}}
# Of SGLang 0.5.23: they steer it, read from elsewhere, run code, or tell of other requests.
STEERING: dict[str, Any] = {
    "lora_path": "adapter-1", "rid": "other", "extra_key": "x", "session_id": "s",
    "session_params": {}, "bootstrap_host": "h", "routed_dp_rank": 1, "data_parallel_rank": 1,
    "custom_logit_processor": "x", "custom_params": {}, "input_ids": [1], "images_config": {},
    "mm_processor_kwargs": {}, "return_hidden_states": True, "return_token_ids": True,
    "return_routed_experts": True, "watermark": {}, "custom_labels": {}, "no_stop_trim": True,
    "regex": "a", "ebnf": "root ::= x", "stop_regex": "a", "json_schema": "{}",
    "separate_reasoning": False, "cache_salt": "x", "priority": -9, "temprature": 1,
}  # fmt: skip


def chat(**fields: Any) -> dict[str, Any]:
    return chat_body(parse(SaltedChat, msgspec.json.encode(CHAT | fields)))


def completion(**fields: Any) -> dict[str, Any]:
    return completion_body(parse(SaltedCompletion, msgspec.json.encode(COMPLETION | fields)))


@pytest.mark.parametrize("path", [CHATS, COMPLETIONS])
@pytest.mark.parametrize("field", STEERING)
def test_what_steers_it_is_refused_by_name(path: str, field: str) -> None:
    body = (CHAT if path == CHATS else COMPLETION) | {field: STEERING[field]}
    with pytest.raises(ApiError) as refused:
        body_check("sglang").refuse(path, msgspec.json.encode(body))
    assert (refused.value.param, refused.value.code) == (field, "unknown_parameter")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", 0), ("prompt_logprobs", 1), ("guided_regex", "a"), ("chat_template", "x"),
        ("temperature", 2.5), ("top_k", -2), ("repetition_penalty", 0), ("n", 17),
        ("reasoning_effort", "ultra"),
        ("structured_outputs", {"regex": "a", "json_object": True}),
        ("chat_template_kwargs", {"chat_template": "x"}),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        ("response_format", {"type": "structural_tag"}),
    ],
)  # fmt: skip
def test_what_it_does_not_honour_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ApiError) as refused:
        sglang.check(CHATS, msgspec.json.encode(CHAT | {field: value}))
    assert (refused.value.param or field).startswith(field)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"echo": True, "max_tokens": 0}, "max_tokens"),
        ({"prompt": ["a"] * 9, "n": 2}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"best_of": 3}, "best_of"),
    ],
)
def test_completions_have_bounds_of_their_own(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ApiError) as refused:
        completion(**fields)
    assert refused.value.param == named


@pytest.mark.parametrize("path", ["/v1/embeddings", "/tokenize", "/v1/score"])
def test_other_routes_are_none_of_its(path: str) -> None:
    with pytest.raises(ApiError) as refused:
        sglang.check(path, b"{}")
    assert refused.value.status == 404


def test_what_is_not_set_is_not_sent() -> None:
    assert chat().keys() == {"messages", "min_tokens", "ignore_eos"}
    sent = completion(user="u", temperature=0, top_k=0, logit_bias={" 7": 1}, stop="x")
    assert (sent["temperature"], sent["top_k"], sent["logit_bias"]) == (0.0, -1, {"7": 1.0})
    assert (sent["max_tokens"], sent["stop"], "user" in sent) == (16, ("x",), False)
    assert chat(cache_salt="0a", priority=10)["priority"] == 10


@pytest.mark.parametrize(
    ("held", "sent"),
    [
        ({"regex": "a|b"}, {"regex": "a|b"}),
        ({"grammar": 'root ::= "x"'}, {"ebnf": 'root ::= "x"'}),
        ({"choice": ['a "b"', "ü"]}, {"ebnf": 'root ::= "a \\"b\\"" | "ü"'}),
        ({"json_object": True}, {"response_format": {"type": "json_object"}}),
        (
            {"json": '{"type": "string"}'},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "string"}},
                }
            },
        ),
    ],
)
def test_rules_come_in_its_words(held: dict[str, Any], sent: dict[str, Any]) -> None:
    for body in (chat(structured_outputs=held), completion(structured_outputs=held)):
        assert sent.items() <= body.items()
        assert "structured_outputs" not in body


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
    body = msgspec.to_builtins(chat(tools=[TOOL, OTHER], tool_choice=choice))
    assert [tool["function"]["name"] for tool in body.get("tools", ())] == names
    assert body.get("tool_choice") == said


def test_the_gateway_salts_it_and_adds_up_its_choices() -> None:
    check = body_check("sglang")
    assert (check.salted, check.counts_each_choice, check.repeated) == (True, True, False)
