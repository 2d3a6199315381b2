"""Tokens of a conversation that are learned: real templates, in text and in tokens."""

from typing import Any

import jinja2
import pytest

from windlass.datasets.chat_tokens import IGNORED, Messages, labels, render_chat

CHATML = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
    "{% if prompt %}<assistant>{% endif %}"
)
# As reasoning models do: what the assistant thought is shown with its last answer alone.
FORGETFUL = (
    "{% for m in messages %}<{{ m.role }}>"
    "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
    "{{ m.content }}<end>\n{% endfor %}{% if prompt %}<assistant>{% endif %}"
)
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "ONE"},
    {"role": "user", "content": "two"},
    {"role": "assistant", "content": "TWO"},
]


def learned(template: str, messages: Messages, weights: list[int]) -> list[tuple[str, list[str]]]:
    compiled = jinja2.Template(template)
    rendered = render_chat(
        lambda part, prompt: compiled.render(messages=part, prompt=prompt),
        messages,
        weights,
        end_token="<end>",
    )
    return [(each.text, [each.text[a:b] for a, b in each.learned]) for each in rendered]


def test_answers_are_learned_with_their_end_and_without_their_beginning() -> None:
    ((text, parts),) = learned(CHATML, TALK, [0, 0, 1, 0, 1])
    assert text == jinja2.Template(CHATML).render(messages=TALK)
    assert parts == ["ONE<end>", "TWO<end>"]


@pytest.mark.parametrize(
    ("weights", "parts"), [([0, 0, 0, 0, 1], ["TWO<end>"]), ([0, 0, 1, 0, 0], ["ONE<end>"])]
)
def test_a_message_of_weight_zero_is_read_and_not_learned(
    weights: list[int], parts: list[str]
) -> None:
    ((text, spans),) = learned(CHATML, TALK, weights)
    assert "ONE" in text
    assert "TWO" in text
    assert spans == parts


def test_a_template_that_forgets_gives_an_example_for_each_answer() -> None:
    first, second = learned(FORGETFUL, TALK, [0, 0, 1, 0, 1])
    assert first == (
        "<system>S<end>\n<user>one<end>\n<assistant><think></think>ONE<end>",
        ["<think></think>ONE<end>"],
    )
    assert second[1] == ["<think></think>TWO<end>"]
    assert "<assistant>ONE<end>" in second[0]


def test_a_conversation_that_the_assistant_opens_is_learned() -> None:
    ((_, parts),) = learned(CHATML, TALK[2:3], [1])
    assert parts == ["<assistant>ONE<end>"]


def test_nothing_to_learn_is_no_example() -> None:
    assert learned(CHATML, TALK, [0, 0, 0, 0, 0]) == []


def test_a_token_is_learned_when_it_begins_in_a_span() -> None:
    offsets = [(0, 2), (2, 5), (5, 6), (6, 9)]
    assert labels([1, 2, 3, 4], offsets, [(2, 6)]) == [IGNORED, 2, 3, IGNORED]
