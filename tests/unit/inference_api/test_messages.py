"""Fields of a message: read, without effect, or refused by name; none is lost in silence."""

from typing import Any

import pytest

from windlass.inference_api.errors import ApiError
from windlass.inference_api.messages import conversation


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"wieght": 1}, "messages[1].wieght", "unknown_parameter"),
        ({"x" * 100: 1}, f"messages[1].{'x' * 64}", "unknown_parameter"),
        ({"audio": {"id": "a-1"}}, "messages[1].audio", "unsupported_parameter"),
        ({"function_call": {"name": "f"}}, "messages[1].function_call", "unsupported_parameter"),
    ],
)
def test_what_would_be_left_out_is_refused_by_name(
    fields: dict[str, Any], param: str, code: str
) -> None:
    asked = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two", **fields}]
    with pytest.raises(ApiError) as refused:
        conversation(asked)
    assert (refused.value.param, refused.value.code) == (param, code)


def test_an_answer_may_be_sent_back_as_it_came() -> None:
    answer: dict[str, Any] = {
        "role": "assistant",
        "content": "two",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "provider_specific_fields": {},
    }
    (plain,) = conversation([answer])
    assert plain == {"role": "assistant", "content": "two"}


def test_a_refusal_is_what_was_said() -> None:
    (plain,) = conversation([{"role": "assistant", "content": None, "refusal": "I will not."}])
    assert plain["content"] == "I will not."


def test_a_template_may_read_the_reasoning() -> None:
    asked = [{"role": "assistant", "content": "4", "reasoning_content": "2 and 2"}]
    assert conversation(asked)[0]["reasoning_content"] == "2 and 2"


@pytest.mark.parametrize("arguments", ["[" * 200_000, "9" * 5000, "{", "[]"])
def test_arguments_of_a_call_that_are_no_object_are_refused(arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    with pytest.raises(ApiError) as refused:
        conversation([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert refused.value.param == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize("name", ["name", "tool_call_id", "reasoning", "reasoning_content"])
def test_what_a_template_reads_is_text(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        conversation([{"role": "assistant", "content": "x", name: {"a": [1]}}])
    assert (refused.value.param, refused.value.code) == (f"messages[0].{name}", "invalid_value")


@pytest.mark.parametrize("name", ["id", "type"])
def test_a_calls_id_and_type_are_text(name: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}, name: 7}
    with pytest.raises(ApiError) as refused:
        conversation([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert refused.value.param == f"messages[0].tool_calls[0].{name}"
