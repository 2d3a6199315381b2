import json
from typing import Any

import pytest
from hypothesis import given
from tests.unit.datasets import examples

from windlass.datasets import DatasetError, Reason, parse_example, to_row, to_training_rows


def rows(example: dict[str, Any]) -> dict[str, Any]:
    return to_training_rows(parse_example(json.dumps(example).encode(), 1))


def test_a_conversation_becomes_messages_and_weights() -> None:
    parts = [{"type": "text", "text": "What "}, {"type": "text", "text": "now?"}]
    assert rows(
        {
            "messages": [
                {"role": "developer", "content": "Be terse."},
                {"role": "user", "content": parts, "name": "ann"},
                {"role": "assistant", "content": "Wrong.", "weight": 0},
                {"role": "user", "content": "Again."},
                {"role": "assistant", "content": "Right.", "weight": 1},
            ]
        }
    ) == {
        "messages": [
            {"role": "system", "content": "Be terse."},
            {"role": "user", "content": "What now?", "name": "ann"},
            {"role": "assistant", "content": "Wrong."},
            {"role": "user", "content": "Again."},
            {"role": "assistant", "content": "Right."},
        ],
        "weights": [0, 0, 0, 0, 1],
    }


def test_tool_calls_keep_their_arguments_as_values() -> None:
    function = {"name": "add", "parameters": {"type": "object"}}
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    row = rows(
        {
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "1"},
            ],
            "tools": [{"type": "function", "function": function}],
        }
    )
    assert row["messages"] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "add", "arguments": {"a": 1}},
                }
            ],
        },
        {"role": "tool", "content": "1", "tool_call_id": "c1"},
    ]
    assert row["tools"] == [{"type": "function", "function": function}]


def test_functions_of_the_older_form_become_tools() -> None:
    row = rows(
        {
            "messages": [
                {"role": "assistant", "function_call": {"name": "now", "arguments": "{}"}},
                {"role": "function", "name": "now", "content": "noon"},
            ],
            "functions": [{"name": "now"}],
        }
    )
    now = {"type": "function", "function": {"name": "now", "arguments": {}}}
    assert row["messages"] == [
        {"role": "assistant", "content": "", "tool_calls": [now]},
        {"role": "tool", "content": "noon", "name": "now"},
    ]
    assert row["tools"] == [{"type": "function", "function": {"name": "now"}}]


def test_a_preference_becomes_prompt_chosen_and_rejected() -> None:
    assert rows(
        {
            "input": {"messages": [{"role": "user", "content": "Hi"}], "tools": []},
            "preferred_output": [{"role": "assistant", "content": "Hello!"}],
            "non_preferred_output": [{"role": "assistant", "content": "What?"}],
        }
    ) == {
        "prompt": [{"role": "user", "content": "Hi"}],
        "chosen": [{"role": "assistant", "content": "Hello!"}],
        "rejected": [{"role": "assistant", "content": "What?"}],
    }


LABELLED: dict[str, Any] = {
    "prompt": [{"role": "user", "content": "Hi"}],
    "completion": [{"role": "assistant", "content": "Hello!"}],
    "label": False,
}
PAIR = {
    "input": {"messages": [{"role": "user", "content": "Hi"}]},
    "preferred_output": [{"role": "assistant", "content": "Hello!"}],
    "non_preferred_output": [{"role": "assistant", "content": "What?"}],
}


def read(example: dict[str, Any], by: str) -> dict[str, Any]:
    return to_row(parse_example(json.dumps(example).encode(), 3), by, 3)


def test_a_labelled_answer_becomes_prompt_completion_and_label() -> None:
    assert rows(LABELLED) == LABELLED
    assert read(LABELLED, "unpaired_preference") == LABELLED
    assert read(PAIR, "unpaired_preference").keys() == {"prompt", "chosen", "rejected"}


def test_a_prompt_is_a_conversation_without_its_last_answer() -> None:
    said = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "See you."},
    ]
    assert read({"messages": said}, "prompt") == {"prompt": said[:3]}


@pytest.mark.parametrize(
    ("example", "by", "reason"),
    [
        (LABELLED, "preference", Reason.WRONG_FORMAT),
        (PAIR, "chat", Reason.WRONG_FORMAT),
        (PAIR, "prompt", Reason.WRONG_FORMAT),
        ({"messages": LABELLED["completion"]}, "prompt", Reason.INVALID_EXAMPLE),
        (
            {
                "messages": [*LABELLED["prompt"], *LABELLED["completion"]],
                "tools": [{"type": "function", "function": {"name": "now"}}],
            },
            "prompt",
            Reason.INVALID_EXAMPLE,
        ),
    ],
)
def test_an_example_that_a_trainer_cannot_read_is_named_by_its_line(
    example: dict[str, Any], by: str, reason: Reason
) -> None:
    with pytest.raises(DatasetError) as caught:
        read(example, by)
    assert (caught.value.line, caught.value.reason) == (3, reason)


@given(examples.chat)
def test_every_message_has_a_weight_and_something_is_learned(example: dict[str, Any]) -> None:
    row = to_training_rows(parse_example(examples.line(example), 1))
    assert len(row["weights"]) == len(row["messages"]) == len(example["messages"])
    assert any(row["weights"])
    learned = {row["messages"][i]["role"] for i, weight in enumerate(row["weights"]) if weight}
    assert learned == {"assistant"}


def test_an_evaluation_asks_for_the_last_answer_and_gives_it_to_the_grader() -> None:
    messages = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And 3 + 3?"},
        {"role": "assistant", "content": "6"},
    ]
    row = to_row(parse_example(json.dumps({"messages": messages}).encode(), 1), "evaluation", 1)
    assert row["prompt"] == messages[:3]
    assert json.loads(row["item"]) == {"messages": messages, "reference_answer": "6"}
    asked = {"messages": messages[:3], "sum": 6}
    row = to_row(parse_example(json.dumps(asked).encode(), 1), "evaluation", 1)
    assert row == {"prompt": messages[:3], "item": json.dumps(asked, separators=(",", ":"))}
    pair = {
        "input": {"messages": messages[:1]},
        "preferred_output": messages[1:2],
        "non_preferred_output": messages[3:],
    }
    with pytest.raises(DatasetError) as refused:
        to_row(parse_example(json.dumps(pair).encode(), 1), "evaluation", 1)
    assert refused.value.reason is Reason.WRONG_FORMAT
