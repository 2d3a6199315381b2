"""Examples in the shape that TRL's trainers read."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.datasets.examples import (
    Assistant,
    Content,
    Developer,
    Example,
    FunctionCall,
    FunctionDefinition,
    FunctionResult,
    Message,
    PreferenceExample,
    ReinforcementExample,
    System,
    ToolDefinition,
    ToolResult,
    UnpairedExample,
    User,
)

# Templates know these four alone.
_ROLES: Mapping[type[Message], str] = {
    System: "system",
    Developer: "system",
    User: "user",
    Assistant: "assistant",
    ToolResult: "tool",
    FunctionResult: "tool",
}


def to_training_rows(example: Example) -> dict[str, Any]:
    """Turns an example into TRL's columns.

    Chat gives `messages` and `weights` (one 0 or 1 per message: whether it is learned);
    a preference gives `prompt`, `chosen` and `rejected`, an unpaired one `prompt`, `completion`
    and `label`; reinforcement `prompt`, and in `item` the whole example as JSON. All give `tools`
    when there are any.
    """
    row: dict[str, Any]
    if isinstance(example, ReinforcementExample):
        row = {
            "prompt": _messages(example.asked.messages),
            "item": msgspec.json.encode(example.item).decode(),
        }
        tools = _tools(example.asked.tools, None)
    elif isinstance(example, UnpairedExample):
        row = {
            "prompt": _messages(example.prompt),
            "completion": _messages(example.completion),
            "label": example.label,
        }
        tools = _tools(example.tools, None)
    elif isinstance(example, PreferenceExample):
        row = {
            "prompt": _messages(example.input.messages),
            "chosen": _messages(example.preferred_output),
            "rejected": _messages(example.non_preferred_output),
        }
        tools = _tools(example.input.tools, None)
    else:
        row = {
            "messages": _messages(example.messages),
            "weights": [int(_is_learned(message)) for message in example.messages],
        }
        tools = _tools(example.tools, example.functions)
    return {**row, "tools": tools} if tools else row


def _is_learned(message: Message) -> bool:
    return isinstance(message, Assistant) and message.weight != 0


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [_message(message) for message in messages]


def _message(message: Message) -> dict[str, Any]:
    # Templates print a null content as "None".
    row: dict[str, Any] = {"role": _ROLES[type(message)], "content": _text(message.content)}
    if message.name is not None:
        row["name"] = message.name
    if isinstance(message, ToolResult):
        row["tool_call_id"] = message.tool_call_id
    if isinstance(message, Assistant):
        if message.content is None and message.refusal is not None:
            row["content"] = message.refusal
        if calls := _calls(message):
            row["tool_calls"] = calls
    return row


def _text(content: Content | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)


def _calls(message: Assistant) -> list[dict[str, Any]]:
    calls = [{"id": call.id, **_call(call.function)} for call in message.tool_calls or ()]
    if message.function_call is not None:
        calls.append(_call(message.function_call))
    return calls


def _call(call: FunctionCall) -> dict[str, Any]:
    arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    return {"type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tools(
    tools: list[ToolDefinition] | None, functions: list[FunctionDefinition] | None
) -> list[dict[str, Any]]:
    every = [*(tool.function for tool in tools or ()), *(functions or ())]
    return [{"type": "function", "function": _function(function)} for function in every]


def _function(function: FunctionDefinition) -> dict[str, Any]:
    """A function as chat tells a model of it: `strict` is for the engine, not for the model."""
    fields = msgspec.structs.asdict(function)
    return {name: fields[name] for name in fields if name != "strict" and fields[name] is not None}
