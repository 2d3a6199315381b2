"""What engines of the kind `vllm` may be asked: a list; all else is refused by name."""

from typing import Any

import msgspec
import pytest

from windlass.inference_api.errors import ApiError
from windlass.inference_api.kinds import body_check
from windlass.inference_api.structured import DOCUMENT_BYTES
from windlass.inference_api.vllm import CHAT, SAMPLING

HELLO = [{"role": "user", "content": "hello"}]
CHATS, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
BODIES: dict[str, dict[str, Any]] = {
    CHATS: {"model": "m", "messages": HELLO},
    COMPLETIONS: {"model": "m", "prompt": "hello"},
    EMBEDDINGS: {"model": "m", "input": "hello"},
    "/tokenize": {"model": "m", "prompt": "hello"},
}
# Of vLLM 0.32: they steer the engine, read from elsewhere, or tell of other requests.
STEERING: dict[str, Any] = {
    "cache_salt": "x",
    "priority": -9,
    "kv_transfer_params": {"do_remote_decode": True},
    "ec_transfer_params": {},
    "vllm_xargs": {"a": 1},
    "mm_processor_kwargs": {},
    "media_io_kwargs": {"video": {"num_frames": 9}},
    "mm_payload": "none",
    "return_mm_kwargs": False,
    "prompt_embeds": "AAAA",
    "request_id": "one",
    "session_id": "one",
    "documents": [{"text": "x"}],
    "routed_experts_prompt_start": 1,
    "watermarking": True,
    "stream_interval": 9,
    "repetition_detection": {"max_pattern_size": 3},
    "length_penalty": 2,
    "logprob_token_ids": [1],
    "return_prompt_text": True,
    "return_token_offsets": True,
    "data_parallel_rank": 1,
    "include_reasoning": False,
    "temprature": 1,
}
TAKEN: dict[str, Any] = {
    "seed": -1,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "stop_token_ids": [1, 2],
    "bad_words": ["bad"],
    "allowed_token_ids": [1, 2],
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "truncate_prompt_tokens": -1,
    "return_token_ids": True,
    "structured_outputs": {"regex": "a|b"},
    "thinking_token_budget": 100,
}
TAKEN_CHAT: dict[str, Any] = {
    "reasoning_effort": "xhigh",
    "add_generation_prompt": False,
    "continue_final_message": True,
}


def refusal(path: str = CHATS, /, kind: str = "vllm", **fields: Any) -> ApiError | None:
    try:
        body_check(kind).refuse(path, msgspec.json.encode({**BODIES.get(path, {}), **fields}))
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", STEERING)
def test_what_steers_the_engine_is_refused_by_name(path: str, name: str) -> None:
    error = refusal(path, **{name: STEERING[name]})
    assert error is not None
    assert (error.status, error.param, error.code) == (400, name, "unknown_parameter")


def test_an_escaped_name_is_the_name() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"cache\\u005fsalt":"x"}'
    with pytest.raises(ApiError) as refused:
        body_check("vllm").refuse(CHATS, body)
    assert refused.value.code == "unknown_parameter"


def test_what_is_on_the_list_passes() -> None:
    assert (SAMPLING.keys(), CHAT.keys()) == (TAKEN.keys(), TAKEN_CHAT.keys())
    for name, value in TAKEN.items():
        assert refusal(CHATS, **{name: value}) is None, name
        assert refusal(COMPLETIONS, **{name: value}) is None, name
    for name, value in TAKEN_CHAT.items():
        assert refusal(CHATS, **{name: value}) is None, name
        assert refusal(COMPLETIONS, **{name: value}) is not None, name
    assert refusal(EMBEDDINGS, truncate_prompt_tokens=9) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"min_p": 1.1}, "min_p"),
        ({"seed": 2**63}, "seed"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"n": 17}, "n"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"top_k": 2**31}, "top_k"),
        ({"min_tokens": 2**31}, "min_tokens"),
        ({"allowed_token_ids": [1], "structured_outputs": {"regex": "a"}}, "allowed_token_ids"),
        (
            {"allowed_token_ids": [1], "response_format": {"type": "json_object"}},
            "allowed_token_ids",
        ),
        ({"structured_outputs": {"json": "[]"}}, "structured_outputs.json"),
        ({"stop_token_ids": [1] * 65}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words[0]"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"backend": "x", "regex": "a"}}, "structured_outputs.backend"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"grammar": "x" * DOCUMENT_BYTES}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["x" * 99] * 700}}, "structured_outputs"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": {"d": "x" * DOCUMENT_BYTES}},
                }
            },
            "response_format",
        ),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"chat_template": "{{ x }}"}, "chat_template"),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"padding": "max_length"}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"tokenizer": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"model_config": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"x": "x" * DOCUMENT_BYTES}}, "chat_template_kwargs"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
    ],
)
def test_what_is_on_the_list_has_bounds(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error is not None
    assert (error.status, error.param) == (400, param)


@pytest.mark.parametrize("kind", ["vllm", "another"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}},
        # vLLM takes this for an image, whatever its type says.
        {"type": "text", "text": "x", "uuid": "1", "image_url": "http://169.254.169.254/"},
    ],
)
def test_no_message_makes_the_engine_fetch(kind: str, part: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": [part]}]
    error = refusal(kind=kind, messages=messages)
    assert error is not None
    assert str(error.param).startswith("messages[0].content[0]")
    if kind == "vllm":
        assert refusal("/tokenize", messages=messages, prompt=None) is not None


def test_a_forced_tool_is_one_or_all() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    one = {"type": "function", "function": {"name": "f"}}
    some = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [one]}}
    assert refusal(tools=tools, tool_choice=one) is None
    error = refusal(tools=tools, tool_choice=some)
    assert error is not None
    assert (error.param, error.code) == ("tool_choice", "unsupported_parameter")
    tools[0]["function"] = {"name": "f", "parameters": {"d": "x" * DOCUMENT_BYTES}}
    assert getattr(refusal(tools=tools), "param", None) == "tools[0]"


@pytest.mark.parametrize("path", [CHATS, COMPLETIONS])
@pytest.mark.parametrize("count", [0, 1, 20])
def test_log_probabilities_of_a_prompt_are_refused(path: str, count: int) -> None:
    error = refusal(path, prompt_logprobs=count)
    assert error is not None
    assert (error.param, error.code) == ("prompt_logprobs", "unsupported_parameter")
    assert refusal(path, prompt_logprobs=None) is None
    assert refusal(path, prompt_logprobs=False) is not None


@pytest.mark.parametrize("logprobs", [0, 5])
def test_an_echo_has_no_log_probabilities(logprobs: int) -> None:
    error = refusal(COMPLETIONS, echo=True, logprobs=logprobs)
    assert error is not None
    assert (error.param, error.code) == ("echo", "unsupported_parameter")
    assert refusal(COMPLETIONS, echo=True) is None
    assert refusal(COMPLETIONS, logprobs=logprobs) is None


HEAVY = {"properties": {f"p{at}": {} for at in range(300)}, "minProperties": 150}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": {"type": "json_schema",
                                 "json_schema": {"name": "x", "schema": HEAVY}}},
            "response_format",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": HEAVY}}]},
            "tools[0].function.parameters",
        ),
        ({"structured_outputs": {"json": HEAVY}}, "structured_outputs.json"),
        (
            {"structured_outputs": {"json": msgspec.json.encode(HEAVY).decode()}},
            "structured_outputs.json",
        ),
    ],
)  # fmt: skip
def test_every_schema_of_a_request_is_bounded(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error is not None
    assert (error.param, error.code) == (param, "invalid_json_schema")


def test_tools_without_parameters_pass_and_go_with_no_list_of_tokens() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert refusal(tools=tools) is None
    error = refusal(tools=tools, allowed_token_ids=[1])
    assert error is not None
    assert error.param == "allowed_token_ids"


@pytest.mark.parametrize(
    ("prompt", "n", "fits"),
    [
        ("x", 16, True),
        (["x"] * 16, 1, True),
        (["x"] * 6, 3, False),
        ([1] * 500, 16, True),
        ([[1, 2], [3]], 8, True),
        ([[1, 2], [3]], 9, False),
        ([[1, -2]], 1, False),
        ([], 1, False),
        (["x", 1], 1, False),
    ],
)
def test_prompts_are_of_one_kind_and_counted(prompt: Any, n: int, fits: bool) -> None:
    error = refusal(COMPLETIONS, prompt=prompt, n=n)
    assert (error is None) is fits
    assert error is None or error.param == "prompt"


@pytest.mark.parametrize("kind", ["vllm", "another"])
def test_a_route_that_is_not_checked_is_not_served(kind: str) -> None:
    error = refusal("/v1/responses", kind=kind)
    assert error is not None
    assert (error.status, error.message) == (404, "The model does not support /v1/responses.")


def test_vllm_ranks_texts_and_gets_nothing_else() -> None:
    asked = {"query": "a", "documents": ["a", "b"]}

    def ranks(**changed: Any) -> ApiError | None:
        body = {"model": "toy", **asked, **changed}
        try:
            body_check("vllm").refuse("/v1/rerank", msgspec.json.encode(body))
        except ApiError as error:
            return error
        return None

    assert ranks(top_n=1, user="me") is None
    for name, value in (
        ("truncate_prompt_tokens", 3),
        ("mm_processor_kwargs", {}),
        ("chat_template_kwargs", {}),
        ("cache_salt", "theirs"),
        ("priority", -5),
        ("request_id", "theirs"),
        ("query", [{"type": "image_url", "image_url": {"url": "http://10.0.0.1"}}]),
        ("documents", [{"content": []}]),
    ):
        error = ranks(**{name: value})
        assert error is not None, name
        assert (error.param or "").startswith(name)


def test_a_kind_that_is_not_known_gets_what_ours_does() -> None:
    assert refusal(kind="another") is None
    for name, value in (TAKEN | TAKEN_CHAT | STEERING).items():
        if name != "seed" and name != "reasoning_effort":
            assert refusal(kind="another", **{name: value}) is not None, name


def test_only_the_builtin_engine_checks_by_itself() -> None:
    assert [body_check(kind).repeated for kind in ("builtin", "vllm", "another", "")] == [
        True, False, False, False,
    ]  # fmt: skip


def test_only_vllm_is_salted_and_counts_each_answer() -> None:
    for kind in ("builtin", "vllm", "another", ""):
        check = body_check(kind)
        assert (check.salted, check.counts_each_choice) == (kind == "vllm", kind == "vllm")


@pytest.mark.parametrize("kind", ["builtin", "vllm", "another"])
def test_numbers_that_engines_hold_in_32_bits_are_bounded(kind: str) -> None:
    for name in ("top_k", "min_tokens"):
        assert refusal(kind=kind, **{name: 2**31 - 1}) is None
        error = refusal(kind=kind, **{name: 10**30})
        assert error is not None
        assert error.param == name


def test_the_reasoning_of_an_answer_may_be_sent_back() -> None:
    said = {"role": "assistant", "content": "4", "reasoning": "2 and 2", "tool_calls": []}
    assert refusal(messages=[*HELLO, said, *HELLO]) is None
