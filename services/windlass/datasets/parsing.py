"""One line of a fine-tuning file, decoded and checked."""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from windlass.datasets.errors import DatasetError, Reason
from windlass.datasets.examples import (
    ROLES,
    Assistant,
    ChatExample,
    Example,
    FunctionCall,
    FunctionDefinition,
    Message,
    PreferenceExample,
    ReinforcementExample,
    ReinforcementPrompt,
    ToolDefinition,
    ToolResult,
    UnpairedExample,
)
from windlass.datasets.shapes import hint_of_bytes, hint_of_row

# Where only an assistant may speak.
_ANSWERS = ("preferred_output[", "non_preferred_output[", "completion[")
# Templates and tables walk nested values by recursion.
MAX_DEPTH = 64


class Format(StrEnum):
    """The formats of a file."""

    CHAT = "chat"
    PREFERENCE = "preference"
    UNPAIRED = "unpaired_preference"
    REINFORCEMENT = "reinforcement"


_CHAT = msgspec.json.Decoder(ChatExample)
_PREFERENCE = msgspec.json.Decoder(PreferenceExample)
_UNPAIRED = msgspec.json.Decoder(UnpairedExample)
_ASKED = msgspec.json.Decoder(ReinforcementPrompt)
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_CHAT_KEYS = frozenset(ChatExample.__struct_fields__)
_PREFERENCE_KEYS = frozenset(PreferenceExample.__struct_fields__)
_UNPAIRED_KEYS = frozenset({"prompt", "completion", "label"})
# msgspec writes "what - at `$.where`".
_MISFIT = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?$", re.DOTALL)
_MESSAGE = re.compile(
    r"(input\.messages|messages|(non_)?preferred_output|prompt|completion)\[\d+\]"
)


def parse_example(line: bytes, number: int) -> Example:
    """Decodes line `number` (1-based) in whichever format it has; raises DatasetError."""
    return parse_as(detect_format(line, number), line, number)


def parse_as(expected: Format, line: bytes, number: int) -> Example:
    """Decodes line `number` as an example of that format; raises DatasetError."""
    try:
        if expected is Format.CHAT:
            chat = _CHAT.decode(line)
            check_chat(chat, number)
            return chat
        if expected is Format.UNPAIRED:
            unpaired = _UNPAIRED.decode(line)
            check_unpaired(unpaired, number)
            return unpaired
        if expected is Format.REINFORCEMENT:
            reinforcement = ReinforcementExample(_ASKED.decode(line), _OBJECT.decode(line))
            check_reinforcement(reinforcement, number)
            return reinforcement
        preference = _PREFERENCE.decode(line)
        check_preference(preference, number)
        return preference
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _explain(error, line, number, expected) from None


def detect_format(line: bytes, number: int) -> Format:
    """Says which format an example has, by its keys; raises DatasetError for none of them."""
    try:
        row = _OBJECT.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _explain_json(error, line, number) from None
    if hint := hint_of_row(row):
        raise DatasetError(hint, reason=Reason.UNKNOWN_FORMAT, line=number)
    keys = row.keys()
    if "messages" in keys:
        return Format.REINFORCEMENT if _is_asked(row) else Format.CHAT
    if keys & _PREFERENCE_KEYS:
        return Format.PREFERENCE
    if keys & _UNPAIRED_KEYS:
        return Format.UNPAIRED
    raise DatasetError(
        'An example needs "messages" (chat; with fields for a grader: reinforcement), or "input", '
        '"preferred_output" and "non_preferred_output" (preference), or "prompt", "completion" '
        'and "label" (unpaired_preference).',
        reason=Reason.UNKNOWN_FORMAT,
        line=number,
    )


def check_chat(example: ChatExample, number: int) -> None:
    """Raises DatasetError unless the conversation holds together and has something to learn."""
    _check_tools(example.tools or (), "tools", number)
    _check_tools(example.functions or (), "functions", number)
    if not _check_messages(example.messages, "messages", number):
        raise DatasetError(
            "There is no assistant message to learn from (one without weight 0). An example for "
            "reinforcement has a field for its grader beside the messages, if only an id.",
            reason=Reason.NO_ASSISTANT_MESSAGE,
            line=number,
            param="messages",
        )


def check_preference(example: PreferenceExample, number: int) -> None:
    """Raises DatasetError unless the prompt leaves the answer to the two outputs."""
    _check_tools(example.input.tools or (), "input.tools", number)
    _check_prompt(example.input.messages, "input.messages", number)
    _check_messages(example.preferred_output, "preferred_output", number)
    _check_messages(example.non_preferred_output, "non_preferred_output", number)


def check_unpaired(example: UnpairedExample, number: int) -> None:
    """Raises DatasetError unless the prompt leaves the answer to the completion."""
    _check_tools(example.tools or (), "tools", number)
    _check_prompt(example.prompt, "prompt", number)
    _check_messages(example.completion, "completion", number)


def check_reinforcement(example: ReinforcementExample, number: int) -> None:
    """Raises DatasetError unless the conversation leaves the answer to the model."""
    _check_tools(example.asked.tools or (), "tools", number)
    _check_prompt(example.asked.messages, "messages", number)
    if _is_deeper(example.item, MAX_DEPTH):
        raise DatasetError(
            f"The example has more than {MAX_DEPTH} levels of nesting.",
            reason=Reason.INVALID_EXAMPLE,
            line=number,
        )


def _is_asked(row: dict[str, Any]) -> bool:
    """Returns True if a conversation waits for its answer, and has fields for a grader."""
    messages = row["messages"]
    last = messages[-1] if isinstance(messages, list) and messages else None
    is_open = isinstance(last, dict) and last.get("role") != "assistant"
    return is_open and not row.keys() <= _CHAT_KEYS


def _check_prompt(messages: Sequence[Message], where: str, number: int) -> None:
    _check_messages(messages, where, number)
    if isinstance(messages[-1], Assistant):
        raise DatasetError(
            f"{where} must not end with an assistant message: what follows answers it.",
            reason=Reason.WRONG_ROLE,
            line=number,
            param=f"{where}[{len(messages) - 1}].role",
        )


def _check_messages(messages: Sequence[Message], where: str, number: int) -> bool:
    """Checks what no type says; returns whether an assistant message is to be learned."""
    learns = False
    called: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, Assistant):
            learns = learns or message.weight != 0
            if message.tool_calls or message.function_call or message.content is None:
                _check_answer(message, f"{where}[{index}]", number)
                called.update(call.id for call in message.tool_calls or ())
        elif isinstance(message, ToolResult) and message.tool_call_id not in called:
            raise _bad_message(
                "no assistant message before it made a tool call with this id.",
                f"{where}[{index}].tool_call_id",
                number,
            )
    return learns


def _check_answer(message: Assistant, where: str, number: int) -> None:
    if message.content is None and not (
        message.tool_calls or message.function_call or message.refusal
    ):
        raise _bad_message(
            "an assistant message needs content or tool_calls.", f"{where}.content", number
        )
    for index, call in enumerate(message.tool_calls or ()):
        _check_arguments(call.function, f"{where}.tool_calls[{index}].function", number)
    if message.function_call is not None:
        _check_arguments(message.function_call, f"{where}.function_call", number)


def _check_arguments(call: FunctionCall, where: str, number: int) -> None:
    try:
        arguments = _OBJECT.decode(call.arguments)
    except (msgspec.MsgspecError, RecursionError):
        raise _bad_message(
            "must be a JSON object, written as a string.", f"{where}.arguments", number
        ) from None
    if _is_deeper(arguments, MAX_DEPTH):
        raise _bad_message(
            f"has more than {MAX_DEPTH} levels of nesting.", f"{where}.arguments", number
        )


def _check_tools(
    tools: Sequence[ToolDefinition | FunctionDefinition], where: str, number: int
) -> None:
    for index, tool in enumerate(tools):
        function = tool.function if isinstance(tool, ToolDefinition) else tool
        if _is_deeper(function.parameters, MAX_DEPTH):
            raise DatasetError(
                f"{where}[{index}]: its parameters have more than {MAX_DEPTH} levels of nesting.",
                reason=Reason.INVALID_EXAMPLE,
                line=number,
                param=f"{where}[{index}]",
            )


def _is_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        return levels == 0 or any(_is_deeper(each, levels - 1) for each in value.values())
    if isinstance(value, list):
        return levels == 0 or any(_is_deeper(each, levels - 1) for each in value)
    return False


def _bad_message(what: str, where: str, number: int) -> DatasetError:
    return DatasetError(f"{where}: {what}", reason=Reason.INVALID_MESSAGE, line=number, param=where)


def _explain(error: Exception, line: bytes, number: int, expected: Format) -> DatasetError:
    if not isinstance(error, msgspec.ValidationError):
        return _explain_json(error, line, number)
    try:
        found = detect_format(line, number)
    except DatasetError as sharper:
        return sharper
    if found is not expected:
        return DatasetError(
            f"This is a {found} example, but the file began with {expected} examples.",
            reason=Reason.MIXED_FORMATS,
            line=number,
        )
    return _explain_misfit(str(error), number)


def _explain_misfit(text: str, number: int) -> DatasetError:
    what, where = _split_misfit(text)
    in_message = _MESSAGE.match(where) is not None
    if what == "Object missing required field `role`":
        what, where = "It is missing", f"{where}.role"
    if in_message and where.endswith("].role"):
        reason = Reason.WRONG_ROLE
        allowed = "assistant" if where.startswith(_ANSWERS) else ", ".join(ROLES)
        what = f"{what}; allowed here: {allowed}"
    else:
        reason = Reason.INVALID_MESSAGE if in_message else Reason.INVALID_EXAMPLE
    sentence = f"{where}: {what}." if where else f"{what}."
    if not where and what.startswith("Object contains unknown field"):
        sentence += " An example with fields for a grader ends with the message to answer."
    return DatasetError(sentence, reason=reason, line=number, param=where or None)


def _split_misfit(text: str) -> tuple[str, str]:
    match = _MISFIT.match(text)
    return (match["what"], match["where"] or "") if match else (text, "")


def _explain_json(error: Exception, line: bytes, number: int) -> DatasetError:
    hint = hint_of_bytes(line) if number == 1 else ""
    try:
        line.decode()
    except UnicodeDecodeError as fault:
        what = f"The text is not UTF-8 (byte {fault.start + 1} of the line)."
        reason = Reason.NOT_UTF8
    else:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        what, reason = f"This is not a JSON object: {detail}.", Reason.INVALID_JSON
    return DatasetError(" ".join(filter(None, (what, hint))), reason=reason, line=number)
