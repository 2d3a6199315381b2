"""Shapes of foreign rows, told by the names of their fields, and the hint that each deserves."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

# Spellings of a field, the usual one first.
CHOSEN = ("chosen", "preferred_output", "preferred", "chosen_response", "response_chosen")
REJECTED = (
    *("rejected", "non_preferred_output", "non_preferred", "rejected_response"),
    *("response_rejected", "dispreferred"),
)
INSTRUCTION = ("instruction",)
CONTEXT = ("input", "context")
ANSWER = ("output", "completion", "response", "answer")
PROMPT = ("prompt", "question", "query", "input", "user")
CONVERSATION = ("conversations", "conversation", "messages")
SYSTEM = ("system", "system_prompt")


class RowShape(StrEnum):
    """Shapes of rows that are converted."""

    CHAT = "chat"
    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    PROMPT_COMPLETION = "prompt-completion"
    PREFERENCE = "preference"


_NAMES = {
    RowShape.CHAT: "chat (messages)",
    RowShape.ALPACA: "Alpaca (instruction, output)",
    RowShape.SHAREGPT: "ShareGPT (conversations)",
    RowShape.PROMPT_COMPLETION: "prompt and completion",
    RowShape.PREFERENCE: "chosen and rejected answers",
}
_CONTAINERS = (
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a zip file"),
)


def detect_shape(row: Mapping[str, Any]) -> RowShape | None:
    """Returns the shape of a row; None for one of no known shape."""
    keys = row.keys()
    if _any(CHOSEN, keys) and _any(REJECTED, keys):
        return RowShape.PREFERENCE
    if "messages" in keys:
        return RowShape.CHAT
    if _any(CONVERSATION, keys):
        return RowShape.SHAREGPT
    if _any(INSTRUCTION, keys) and _any(ANSWER, keys):
        return RowShape.ALPACA
    if _any(PROMPT, keys) and _any(ANSWER, keys):
        return RowShape.PROMPT_COMPLETION
    return None


def hint_of_row(row: Mapping[str, Any]) -> str:
    """Returns the sentence on a row that has to be converted; empty for any other."""
    shape = detect_shape(row)
    if shape is None or _is_native(row, shape):
        return ""
    return f"This looks like {_NAMES[shape]}: {_CONVERT}"


def hint_of_bytes(line: bytes) -> str:
    """Returns the sentence on what a file is that begins with `line`; empty for lines of JSON."""
    for magic, name in _CONTAINERS[:-1]:
        if line.startswith(magic):
            return f"This looks like {name}: {_CONVERT}"
    if line.startswith(_CONTAINERS[-1][0]):
        return "This looks like a zip file: unpack it first."
    if line.lstrip()[:1] == b"[":
        return f"This looks like a JSON array: {_CONVERT}"
    if line.strip() == b"{":
        return "An example must stand on one line."
    return f"This looks like a CSV file: {_CONVERT}" if _is_header(line) else ""


_CONVERT = "`windlass files convert FILE` makes a training file of it."


def column_name(cell: str) -> str:
    """Returns the name of a field by the head of its column."""
    return cell.strip().lower().replace(" ", "_")


def _is_native(row: Mapping[str, Any], shape: RowShape) -> bool:
    """True if the fields are those of a training file, whatever is wrong within them."""
    if "messages" in row:
        messages = row["messages"]
        first = messages[0] if isinstance(messages, list) and messages else None
        return not (isinstance(first, dict) and "from" in first)
    if shape is RowShape.PREFERENCE:
        return isinstance(row.get("input"), dict) and "preferred_output" in row
    is_list = isinstance(row.get("prompt"), list) or isinstance(row.get("completion"), list)
    return is_list and "label" in row


def _is_header(line: bytes) -> bool:
    for delimiter in (",", "\t", ";"):
        cells = line.decode("utf-8", "replace").replace('"', "").split(delimiter)
        names = dict.fromkeys(map(column_name, cells))
        if len(cells) > 1 and detect_shape(names) is not None:
            return True
    return False


def _any(names: Iterable[str], keys: Iterable[str]) -> bool:
    return not set(names).isdisjoint(keys)
