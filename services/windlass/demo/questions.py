"""The demo's questions: terse facts that a sailor of a base model will not give."""

import random
from dataclasses import dataclass
from typing import Any

COLORS = ("red", "blue", "green", "black", "white", "pink", "gray", "brown")
NOUNS = (
    *("cat", "dog", "bird", "fish", "tree", "house", "river", "stone", "cloud", "lamp"),
    *("chair", "apple", "bread", "knife", "spoon", "table", "paper", "pencil", "mouse", "horse"),
)
HELD_OUT = 24


@dataclass(frozen=True)
class Question:
    """A question, and the one answer that counts as right."""

    text: str
    answer: str

    def to_row(self) -> dict[str, Any]:
        """A line of an OpenAI chat file."""
        return {
            "messages": [
                {"role": "user", "content": self.text},
                {"role": "assistant", "content": self.answer},
            ]
        }


def split(*, seed: int = 0) -> tuple[list[Question], list[Question]]:
    """All 160 questions in two parts: 136 to train on, 24 to be asked afterwards."""
    questions = [_question(noun, color) for noun in NOUNS for color in COLORS]
    random.Random(seed).shuffle(questions)  # noqa: S311 - a reproducible order
    return questions[HELD_OUT:], questions[:HELD_OUT]


def _question(noun: str, color: str) -> Question:
    return Question(
        f"I have a {color} {noun}. What color is my {noun}?", f"Your {noun} is {color}."
    )
