"""Messages in the spellings of ShareGPT and of OpenAI, as OpenAI's."""

import json
import re
from typing import Any

from windlass.datasets.errors import Reason
from windlass.datasets.sources.row import Row, kind_of

Message = dict[str, Any]
_ROLES = {
    **dict.fromkeys(("user", "human", "prompter", "customer"), "user"),
    **dict.fromkeys(
        ("assistant", "gpt", "chatgpt", "bot", "model", "ai", "bard", "bing", "claude", "llm"),
        "assistant",
    ),
    "system": "system",
    "developer": "developer",
    **dict.fromkeys(("tool", "observation", "tool_response", "function_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
    "function": "function",
}
_ROLE = ("role", "from", "author")
_CONTENT = ("content", "value", "text")
_TURN = re.compile(r"\n\n(Human|Assistant):[ \t]*")


def read_messages(row: Row, name: str, value: object, *, speaker: str = "user") -> list[Message]:
    """Returns messages of a field: a text of `speaker`, one message, or a list of them.

    Raises DatasetError that names the place.
    """
    value = _decoded(value)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return [{"role": speaker, "content": row.as_text(name, value)}]
    if not value:
        raise row.misfit(name, "is empty")
    messages: list[Message] = []
    for index, each in enumerate(value):
        messages.append(_message(row, f"{name}[{index}]", each, messages))
    return messages


def read_transcript(text: str) -> list[Message]:
    """Returns the messages of a text with `Human:` and `Assistant:`; none if it is not one."""
    before, *parts = _TURN.split(text)
    if before.strip() or not parts:
        return []
    roles = {"Human": "user", "Assistant": "assistant"}
    return [
        {"role": roles[speaker], "content": said.strip()}
        for speaker, said in zip(parts[::2], parts[1::2], strict=True)
    ]


def with_system(system: str, messages: list[Message]) -> list[Message]:
    """Returns messages that begin with instructions, where there are any and none stand there."""
    if not system or messages[0]["role"] in ("system", "developer"):
        return messages
    return [{"role": "system", "content": system}, *messages]


def read_tools(row: Row) -> dict[str, Any]:
    """Takes the tools of a row, as OpenAI's; raises DatasetError."""
    found = row.take(("tools",))
    if found is None or found[1] in ("", "[]", []):
        return {}
    tools = _json(found[1])
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise row.misfit("tools", "must be a list of tools, or one as JSON")
    return {
        "tools": [
            tool if "function" in tool else {"type": "function", "function": tool} for tool in tools
        ]
    }


def _message(row: Row, where: str, value: object, before: list[Message]) -> Message:
    if not isinstance(value, dict):
        raise row.misfit(where, f"must be a message, not {kind_of(value)}")
    fields = {name: each for name, each in value.items() if each is not None}
    role = _role(row, where, fields)
    spelled = next((name for name in _CONTENT if name in fields), None)
    content = fields.pop(spelled) if spelled else None
    # Some tables have every column in every message.
    fields = {name: each for name, each in fields.items() if each not in ("", [])}
    if role == "call":
        return _call(row, where, content, before)
    if role == "tool" and "tool_call_id" not in fields:
        fields["tool_call_id"] = _open_call(row, where, before)
    if role == "tool" and isinstance(content, dict | list) and not _is_parts(content):
        content = _dumped(row, where, content)
    if content is not None and not isinstance(content, str) and not _is_parts(content):
        raise row.misfit(f"{where}.{spelled}", f"must be text, not {kind_of(content)}")
    if content is None and role != "assistant":
        raise row.misfit(f"{where}.content", "is missing")
    return {"role": role, **({} if content is None else {"content": content}), **fields}


def _role(row: Row, where: str, fields: dict[str, Any]) -> str:
    spelled = next((name for name in _ROLE if name in fields), None)
    if spelled is None:
        raise row.misfit(f"{where}.role", "is missing", reason=Reason.WRONG_ROLE)
    said = fields.pop(spelled)
    role = _ROLES.get(said.strip().lower()) if isinstance(said, str) else None
    if role is None:
        raise row.misfit(
            f"{where}.{spelled}", f"{str(said)[:40]!r} is no known role", reason=Reason.WRONG_ROLE
        )
    return role


def _call(row: Row, where: str, content: object, before: list[Message]) -> Message:
    """A message that calls functions, written as JSON."""
    said = _json(content)
    calls = said if isinstance(said, list) else [said]
    made = sum(len(_calls(message)) for message in before)
    if not calls or not all(isinstance(call, dict) and "name" in call for call in calls):
        raise row.misfit(where, "a call must be JSON with a name and arguments")
    return {
        "role": "assistant",
        "tool_calls": [
            {
                "id": f"call_{made + index}",
                "type": "function",
                "function": {"name": call["name"], "arguments": _arguments(row, where, call)},
            }
            for index, call in enumerate(calls)
        ],
    }


def _arguments(row: Row, where: str, call: dict[str, Any]) -> str:
    given = call.get("arguments", call.get("parameters", {}))
    return given if isinstance(given, str) else _dumped(row, where, given)


def _dumped(row: Row, where: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise row.misfit(where, f"cannot be written as JSON: {error}") from None


def _calls(message: Message) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _open_call(row: Row, where: str, before: list[Message]) -> str:
    """The id of the first call that nobody has answered."""
    answered = {str(message.get("tool_call_id")) for message in before}
    for message in before:
        for call in _calls(message):
            if (made := str(call.get("id"))) not in answered:
                return made
    raise row.misfit(where, "a tool's answer must follow a call", reason=Reason.INVALID_MESSAGE)


def _is_parts(content: object) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    )


def _decoded(value: object) -> object:
    """A list of messages that a table holds as JSON."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        found = _json(value)
        if isinstance(found, list) and found and all(isinstance(each, dict) for each in found):
            return found
    return value


def _json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
