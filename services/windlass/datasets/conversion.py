"""Conversion of examples to the rows that a trainer reads."""

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.examples import (
    ChatExample,
    Example,
    PreferenceExample,
    ReinforcementExample,
    UnpairedExample,
)
from windlass.datasets.parsing import Format
from windlass.datasets.training_rows import to_training_rows

_FORMATS: dict[type, Format] = {
    ChatExample: Format.CHAT,
    PreferenceExample: Format.PREFERENCE,
    UnpairedExample: Format.UNPAIRED,
    ReinforcementExample: Format.REINFORCEMENT,
}
# By what a backend says that its trainer reads. A pair is two answers, each with its label:
# TRL takes pairs apart itself, so that no two answers to one prompt end up side by side.
_TAKEN: Mapping[str, tuple[Format, ...]] = {
    "chat": (Format.CHAT,),
    "preference": (Format.PREFERENCE,),
    "unpaired_preference": (Format.UNPAIRED, Format.PREFERENCE),
    "prompt": (Format.CHAT,),
    "reinforcement": (Format.REINFORCEMENT,),
    # Of no trainer: what two models answer, and a grader compares.
    "evaluation": (Format.CHAT, Format.REINFORCEMENT),
}
# Whose trainers put a prompt to the model themselves, without tools.
_WITHOUT_TOOLS = ("prompt", "reinforcement", "evaluation")


def formats_for(read: str) -> tuple[Format, ...]:
    """Returns the formats of files that a trainer can be given that reads `read`."""
    return _TAKEN[read]


def to_row(example: Example, read: str, number: int) -> dict[str, Any]:
    """Turns line `number` into the row for a trainer that reads `read`; raises DatasetError."""
    taken = formats_for(read)
    if _FORMATS[type(example)] not in taken:
        raise DatasetError(
            f"This training needs {' or '.join(taken)} examples.",
            reason=Reason.WRONG_FORMAT,
            line=number,
        )
    row = to_training_rows(example)
    if read == "prompt":
        row = _prompt(row, number)
    elif read == "evaluation" and "messages" in row:
        row = _prompt(row, number) | {"item": _item(row["messages"])}
    if read in _WITHOUT_TOOLS and "tools" in row:
        raise DatasetError(
            "The trainer cannot pass tools to the model.",
            reason=Reason.INVALID_EXAMPLE,
            line=number,
            param="tools",
        )
    return row


def _item(messages: list[dict[str, Any]]) -> str:
    """The fields of a conversation that a grader may refer to, as JSON."""
    answer = messages[_last_answer(messages)]["content"]
    return msgspec.json.encode({"messages": messages, "reference_answer": answer}).decode()


def _last_answer(messages: list[dict[str, Any]]) -> int:
    return max(i for i, message in enumerate(messages) if message["role"] == "assistant")


def _prompt(row: dict[str, Any], number: int) -> dict[str, Any]:
    """The conversation up to its last answer, which the model is to give itself."""
    messages = row["messages"]
    end = _last_answer(messages)
    if not end:
        raise DatasetError(
            "A message must precede the assistant's message that the model is to write.",
            reason=Reason.INVALID_EXAMPLE,
            line=number,
            param="messages",
        )
    tools = {"tools": row["tools"]} if "tools" in row else {}
    return {"prompt": messages[:end], **tools}
