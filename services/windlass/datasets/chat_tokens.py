"""Conversations as token ids and labels: what the model is to learn, and what it only reads.

What is learned of an assistant's message is what the template adds to the generation prompt:
the text between the conversation up to it, rendered with `add_generation_prompt`, and the
conversation up to and with it. That is exactly what the model has to write when it serves, it
holds for templates with and without `{% generation %}` markers, and it leaves out single
messages (`weight: 0`), for which TRL's `assistant_only_loss` has no means.

A template may render an answer differently once others follow it (reasoning is dropped from
the past, say). Such a conversation becomes one example for each answer, each as it is when
that answer is asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

IGNORED = -100

Messages = Sequence[dict[str, Any]]
# (messages, add_generation_prompt) -> text
Render = Callable[[Messages, bool], str]
Span = tuple[int, int]


@dataclass(frozen=True)
class Rendered:
    """A text for the model, and the parts of it that are learned."""

    text: str
    learned: tuple[Span, ...]


def render_chat(
    render: Render, messages: Messages, weights: Sequence[int], *, end_token: str
) -> list[Rendered]:
    """Renders a conversation: as one text where the template allows it."""
    answers: list[tuple[str, Span]] = []
    for index, weight in enumerate(weights):
        if weight:
            answered = render(messages[: index + 1], False)
            asked = render(messages[:index], True) if index else ""
            start = shared(asked, answered)
            answers.append((answered, (start, end_of(answered, end_token))))
    if not answers:
        return []
    whole = render(messages, False)
    if all(whole.startswith(answered[: span[1]]) for answered, span in answers):
        return [Rendered(whole, tuple(span for _, span in answers))]
    return [Rendered(answered[: span[1]], (span,)) for answered, span in answers]


def labels(input_ids: Sequence[int], offsets: Sequence[Span], learned: Sequence[Span]) -> list[int]:
    """The ids of the tokens that begin inside a learned span, IGNORED elsewhere."""
    return [
        token if is_learned(span, learned) else IGNORED
        for token, span in zip(input_ids, offsets, strict=True)
    ]


def is_learned(span: Span, learned: Sequence[Span]) -> bool:
    """Returns True if a token begins inside a learned span."""
    return any(start <= span[0] < end for start, end in learned)


def shared(one: str, other: str) -> int:
    """The length of what two texts begin with alike."""
    if other.startswith(one):
        # As a rule; letter by letter it would take most of the time.
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def end_of(answered: str, end_token: str) -> int:
    """The end of an answer: white space after the end token belongs to the next message."""
    stripped = answered.rstrip()
    return len(stripped) if end_token and stripped.endswith(end_token) else len(answered)
