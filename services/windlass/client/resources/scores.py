"""Scores of a reward model, read from its response."""

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
Conversation = Sequence[Message]
Input = str | Conversation | Sequence[str | Conversation]


def read_scores(answer: Mapping[str, Any]) -> list[float]:
    """The scores of an answer to POST /v1/score, in the order of the inputs."""
    return [float(one["score"]) for one in sorted(answer["data"], key=lambda one: one["index"])]
