import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.datasets import examples

from windlass.datasets import (
    ChatExample,
    DatasetError,
    PreferenceExample,
    Reason,
    UnpairedExample,
    parse_example,
    to_training_rows,
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=4,
)


def refusal(example: object) -> DatasetError:
    line = example if isinstance(example, bytes) else json.dumps(example).encode()
    with pytest.raises(DatasetError) as caught:
        parse_example(line, 7)
    assert caught.value.line == 7
    return caught.value


def user(text: object = "a") -> dict[str, object]:
    return {"role": "user", "content": text}


def assistant(**fields: object) -> dict[str, object]:
    return {"role": "assistant", "content": "b", **fields}


def call(arguments: str = "{}") -> dict[str, object]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def tool(*, levels: int) -> dict[str, object]:
    parameters: dict[str, object] = {}
    for _ in range(levels - 1):
        parameters = {"a": parameters}
    return {"type": "function", "function": {"name": "f", "parameters": parameters}}


def test_nesting_up_to_the_limit_passes() -> None:
    deep = '{"a": ' + "[" * 63 + "]" * 63 + "}"
    example = {"messages": [assistant(tool_calls=[call(deep)])], "tools": [tool(levels=64)]}
    assert parse_example(json.dumps(example).encode(), 1)


@given(examples.chat)
def test_any_conversation_passes(example: dict[str, Any]) -> None:
    assert isinstance(parse_example(examples.line(example), 1), ChatExample)


@given(examples.preference)
def test_any_preference_passes(example: dict[str, Any]) -> None:
    assert isinstance(parse_example(examples.line(example), 1), PreferenceExample)


@given(examples.unpaired)
def test_any_labelled_answer_passes(example: dict[str, Any]) -> None:
    assert isinstance(parse_example(examples.line(example), 1), UnpairedExample)


@pytest.mark.parametrize(
    ("change", "reason", "param"),
    [
        ({"label": None}, Reason.INVALID_EXAMPLE, "label"),
        ({"label": 1}, Reason.INVALID_EXAMPLE, "label"),
        ({"prompt": "a"}, Reason.INVALID_EXAMPLE, "prompt"),
        ({"prompt": []}, Reason.INVALID_EXAMPLE, "prompt"),
        ({"prompt": [user(), assistant()]}, Reason.WRONG_ROLE, "prompt[1].role"),
        ({"prompt": [{"role": "wizard"}]}, Reason.WRONG_ROLE, "prompt[0].role"),
        ({"completion": [user()]}, Reason.WRONG_ROLE, "completion[0].role"),
        ({"completion": [{"role": "assistant"}]}, Reason.INVALID_MESSAGE, "completion[0].content"),
        ({"completion": [assistant()] * 2}, Reason.INVALID_EXAMPLE, "completion"),
        ({"weight": 1}, Reason.INVALID_EXAMPLE, None),
    ],
)
def test_a_labelled_answer_that_is_wrong_is_named(
    change: dict[str, Any], reason: Reason, param: str | None
) -> None:
    sound = {"prompt": [user()], "completion": [assistant()], "label": True}
    found = refusal({**sound, **change})
    assert (found.reason, found.param) == (reason, param)


@given(examples.examples, st.data())
def test_a_damaged_example_is_sound_or_refused(
    example: dict[str, Any], data: st.DataObject
) -> None:
    damaged = _replace_somewhere(example, data)
    _parse_or_refuse(examples.line(damaged))


@given(examples.examples, st.data())
def test_damaged_bytes_are_sound_or_refused(example: dict[str, Any], data: st.DataObject) -> None:
    line = bytearray(examples.line(example))
    at = data.draw(st.integers(min_value=0, max_value=len(line) - 1))
    line[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    _parse_or_refuse(bytes(line).replace(b"\n", b" "))


@given(st.binary(max_size=60))
def test_any_bytes_are_sound_or_refused(line: bytes) -> None:
    _parse_or_refuse(line)


Mutation = Callable[[dict[str, Any]], object]
BREAKING: list[Mutation] = [
    lambda example: [example],
    lambda example: {**example, "prompt": "x"},
    lambda example: {**example, "tools": {}},
    lambda example: {**example, "messages": None},
    lambda example: {**example, "messages": []},
    lambda example: {**example, "messages": [*example["messages"], {"role": "robot"}]},
    lambda example: {**example, "messages": [*example["messages"], {"content": "x"}]},
    lambda example: {**example, "messages": [*example["messages"], "x"]},
    lambda example: {**example, "messages": [*example["messages"], user(5)]},
    lambda example: {**example, "messages": [{**m, "weight": 2} for m in example["messages"]]},
    lambda example: {**example, "messages": [{**m, "x": 0} for m in example["messages"]]},
    lambda example: {**example, "messages": [m for m in example["messages"] if _asks(m)]},
]


def _asks(message: dict[str, Any]) -> bool:
    return message["role"] not in ("assistant", "tool")


@given(examples.chat, st.sampled_from(BREAKING))
def test_a_broken_conversation_is_refused(example: dict[str, Any], breaks: Mutation) -> None:
    assert refusal(breaks(example)).reason in set(Reason)


@pytest.mark.parametrize(
    ("example", "reason", "param", "sentence"),
    [
        (b'{"messages": [', "invalid_json", None, "truncated"),
        (b"[" * 100_000, "invalid_json", None, "JSON object"),
        (b'{"messages":' + b"[" * 100_000, "invalid_json", None, "nested too deeply"),
        (b'{"messages":"\xff"}', "not_utf8", None, "byte 14"),
        ({"text": "x"}, "unknown_format", None, '"messages"'),
        ({"messages": [user()]}, "no_assistant_message", "messages", "learn from"),
        (
            {"messages": [user(), assistant(weight=0)]},
            "no_assistant_message",
            "messages",
            "weight 0",
        ),
        (
            {"messages": [{"role": "robot", "content": "x"}, assistant()]},
            "wrong_role",
            "messages[0].role",
            "'robot'; allowed here: system, developer, user, assistant, tool",
        ),
        ({"messages": [{"content": "x"}]}, "wrong_role", "messages[0].role", "missing"),
        ({"messages": [user(None)]}, "invalid_message", "messages[0].content", "`null`"),
        (
            {"messages": [assistant(weigth=0)]},
            "invalid_message",
            "messages[0]",
            "unknown field `weigth`",
        ),
        (
            {"messages": [user(), assistant(content=None)]},
            "invalid_message",
            "messages[1].content",
            "content or tool_calls",
        ),
        (
            {"messages": [assistant(tool_calls=[call("[1]")])]},
            "invalid_message",
            "messages[0].tool_calls[0].function.arguments",
            "JSON object",
        ),
        *(
            (
                {"messages": [assistant(tool_calls=[call(deep)])]},
                "invalid_message",
                "messages[0].tool_calls[0].function.arguments",
                sentence,
            )
            for deep, sentence in [
                ('{"a": ' + "[" * 100_000, "JSON object"),
                ('{"a": ' + "[" * 64 + "]" * 64 + "}", "64 levels"),
            ]
        ),
        (
            {"messages": [assistant()], "tools": [tool(levels=65)]},
            "invalid_example",
            "tools[0]",
            "64 levels",
        ),
        (
            {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}, assistant()]},
            "invalid_message",
            "messages[0].tool_call_id",
            "tool call with this id",
        ),
        (
            {"messages": [user([{"type": "image_url", "image_url": {}}]), assistant()]},
            "invalid_message",
            "messages[0].content[0].type",
            "'image_url'",
        ),
        (
            {"messages": [assistant()], "tools": [{"type": "browser"}]},
            "invalid_example",
            "tools[0].type",
            "'browser'",
        ),
        (
            {"input": {"messages": [user()]}, "preferred_output": [assistant()]},
            "invalid_example",
            None,
            "`non_preferred_output`",
        ),
        (
            {"messages": [user(), assistant()], "answer": "x"},
            "invalid_example",
            None,
            "unknown field `answer`. An example with fields for a grader ends with the message",
        ),
        ({"messages": [user(5)], "answer": "x"}, "invalid_message", "messages[0].content", "int"),
        (
            {"messages": [user()], "answer": {"a": json.loads("[" * 64 + "]" * 64)}},
            "invalid_example",
            None,
            "64 levels",
        ),
        (
            {"messages": [user()], "answer": "x", "tools": [{"type": "browser"}]},
            "invalid_example",
            "tools[0].type",
            "'browser'",
        ),
    ],
)
def test_a_refusal_names_the_place_and_the_reason(
    example: object, reason: str, param: str | None, sentence: str
) -> None:
    error = refusal(example)
    assert (error.reason, error.param) == (reason, param)
    assert sentence in str(error)
    assert str(error).startswith("Line 7: ")


def test_a_preference_leaves_the_answer_to_its_outputs() -> None:
    def example(messages: list[object], answer: object) -> dict[str, object]:
        prompt = {"messages": messages}
        return {"input": prompt, "preferred_output": [answer], "non_preferred_output": [answer]}

    assert refusal(example([user(), assistant()], assistant())).param == "input.messages[1].role"
    wrong = refusal(example([user()], user()))
    assert (wrong.reason, wrong.param) == ("wrong_role", "preferred_output[0].role")
    assert "allowed here: assistant" in wrong.message


def _parse_or_refuse(line: bytes) -> None:
    try:
        example = parse_example(line, 3)
    except DatasetError as error:
        refused = (error.line, error.reason in set(Reason))
    else:
        json.dumps(to_training_rows(example))
        refused = (3, True)
    assert refused == (3, True)


def _replace_somewhere(value: Any, data: st.DataObject) -> Any:
    """Replaces, removes or adds one value anywhere in a JSON document."""
    if not isinstance(value, dict | list) or not value or data.draw(st.integers(0, 4)) == 0:
        return data.draw(anything)
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = data.draw(st.sampled_from(keys))
    changed = value.copy()
    match data.draw(st.sampled_from(["deeper", "deeper", "deeper", "remove", "add"])):
        case "deeper":
            changed[key] = _replace_somewhere(value[key], data)
        case "remove":
            del changed[key]
        case "add" if isinstance(changed, dict):
            changed[data.draw(st.text(max_size=6))] = data.draw(anything)
        case _ if isinstance(changed, list):
            changed.append(data.draw(anything))
    return changed
