"""Detection of what a chat template renders of tools, their calls and their results.

A template that does not leaves them out without a word, and a training would learn nothing of
them.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

_NAME, _VALUE = "sample_function", "sample_answer"
_ASKED = {"role": "user", "content": "sample question"}
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "A sample.",
        "parameters": {"type": "object", "properties": {}},
    },
}
# Ids of nine characters, which is what Mistral's templates insist on.
_CALLED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "sampleid1", "type": "function", "function": {"name": _NAME, "arguments": {}}}
    ],
}
_ANSWERED = {"role": "tool", "name": _NAME, "tool_call_id": "sampleid1", "content": _VALUE}


class ToolPlaces:
    """Places for tools in a tokenizer's chat template, found by rendering a sample."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer

    def missing(self, row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str | None:
        """The part of a row that the template would leave out, in words; None for nothing."""
        if row.get("tools") and not self._tools:
            return "tools"
        if any(message.get("tool_calls") for message in messages) and not self._calls:
            return "calls of tools"
        if any(message["role"] == "tool" for message in messages) and not self._answers:
            return "answers of tools"
        return None

    @cached_property
    def _tools(self) -> bool:
        return self._renders([_ASKED], [_TOOL], _NAME)

    @cached_property
    def _calls(self) -> bool:
        return self._renders([_ASKED, _CALLED], None, _NAME)

    @cached_property
    def _answers(self) -> bool:
        return self._renders([_ASKED, _CALLED, _ANSWERED], None, _VALUE)

    def _renders(self, messages: list[Any], tools: list[Any] | None, mark: str) -> bool:
        try:
            text = self._tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
        except Exception:
            # A template that refuses a sample says of a row itself what it does not like.
            return True
        return mark in text
