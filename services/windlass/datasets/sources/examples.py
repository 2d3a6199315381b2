"""Examples made of foreign rows, one function for each shape."""

from collections.abc import Callable, Mapping
from typing import Any

from windlass.datasets.shapes import (
    ANSWER,
    CHOSEN,
    CONTEXT,
    CONVERSATION,
    INSTRUCTION,
    PROMPT,
    REJECTED,
    SYSTEM,
    RowShape,
)
from windlass.datasets.sources.messages import (
    Message,
    read_messages,
    read_tools,
    read_transcript,
    with_system,
)
from windlass.datasets.sources.row import Row

Example = dict[str, Any]
_LABELS = {"true": True, "1": True, "false": False, "0": False}


def make_example(shape: RowShape, row: Row) -> Example:
    """Returns the example of a row of that shape; raises DatasetError naming the field."""
    return _MAKERS[shape](row)


def _alpaca(row: Row) -> Example:
    asked = _instruction(row)
    answer = {"role": "assistant", "content": row.text(ANSWER)}
    system = row.optional_text(SYSTEM)
    return {"messages": with_system(system, [*_history(row), asked, answer])}


def _sharegpt(row: Row) -> Example:
    name, value = row.require(CONVERSATION)
    if isinstance(value, list) and not value:
        raise row.misfit(name, "is empty")
    messages = read_messages(row, name, value)
    return {
        "messages": with_system(row.optional_text(SYSTEM), messages),
        **read_tools(row),
        **_others(row, ("parallel_tool_calls", "functions")),
    }


def _prompt_completion(row: Row) -> Example:
    prompt = with_system(row.optional_text(SYSTEM), _prompt(row))
    name, value = row.require(("completion", *ANSWER))
    answer = read_messages(row, name, value, speaker="assistant")
    label = row.take(("label",))
    if label is None:
        return {"messages": [*prompt, *answer], **read_tools(row)}
    good = label[1] if isinstance(label[1], bool) else _LABELS.get(str(label[1]).strip().lower())
    if good is None:
        raise row.misfit("label", "must be true or false")
    return {"prompt": prompt, "completion": answer, "label": good, **read_tools(row)}


def _preference(row: Row) -> Example:
    system = row.optional_text(SYSTEM)
    chosen_name, chosen_value = row.require(CHOSEN)
    rejected_name, rejected_value = row.require(REJECTED)
    asked = _asked(row)
    chosen = _answer(row, chosen_name, chosen_value, has_prompt=bool(asked))
    rejected = _answer(row, rejected_name, rejected_value, has_prompt=bool(asked))
    if chosen[:-1] != rejected[:-1]:
        raise row.misfit(rejected_name, f"must differ from {chosen_name} in its last message alone")
    if chosen[-1] == rejected[-1]:
        raise row.misfit(rejected_name, f"is the same answer as {chosen_name}")
    prompt = _joined(asked, chosen[:-1])
    if not prompt:
        raise row.misfit("prompt", "is missing")
    return {
        "input": {"messages": with_system(system, prompt), **read_tools(row)},
        "preferred_output": chosen[-1:],
        "non_preferred_output": rejected[-1:],
    }


_MAKERS: Mapping[RowShape, Callable[[Row], Example]] = {
    RowShape.ALPACA: _alpaca,
    RowShape.CHAT: _sharegpt,
    RowShape.SHAREGPT: _sharegpt,
    RowShape.PROMPT_COMPLETION: _prompt_completion,
    RowShape.PREFERENCE: _preference,
}


def _instruction(row: Row) -> Message:
    """Alpaca's question, with the text that it is about."""
    instruction, context = row.text(INSTRUCTION), row.optional_text(CONTEXT)
    return {"role": "user", "content": f"{instruction}\n\n{context}" if context else instruction}


def _history(row: Row) -> list[Message]:
    """Turns before the question, each a question and its answer."""
    found = row.take(("history",))
    messages: list[Message] = []
    turns = found[1] if found else []
    if not isinstance(turns, list):
        raise row.misfit("history", "must be a list of questions with their answers")
    for index, turn in enumerate(turns):
        if not isinstance(turn, list) or len(turn) != 2:
            raise row.misfit(f"history[{index}]", "must be a question and its answer")
        for place, role in enumerate(("user", "assistant")):
            said = row.as_text(f"history[{index}][{place}]", turn[place])
            messages.append({"role": role, "content": said})
    return messages


def _prompt(row: Row) -> list[Message]:
    name, value = row.require(PROMPT)
    return read_messages(row, name, value)


def _asked(row: Row) -> list[Message]:
    """The prompt of a pair in any of its spellings; none where the answers repeat it."""
    if "instruction" in row.left:
        return [*_history(row), _instruction(row)]
    found = row.take((*PROMPT, *CONVERSATION))
    if found is None:
        return []
    name, value = found
    if isinstance(value, dict) and "messages" in value:
        # OpenAI's, with answers in another spelling.
        return read_messages(row, f"{name}.messages", value["messages"])
    return read_messages(row, name, value)


def _answer(row: Row, name: str, value: object, *, has_prompt: bool) -> list[Message]:
    """An answer, after the conversation that leads to it where that is repeated."""
    messages = read_messages(row, name, value, speaker="assistant")
    if not has_prompt and isinstance(value, str) and len(messages) == 1:
        messages = read_transcript(value) or messages
    if messages[-1]["role"] != "assistant":
        raise row.misfit(name, "must end with a message of the assistant")
    return messages


def _joined(asked: list[Message], led: list[Message]) -> list[Message]:
    """The prompt, which whole conversations repeat: with its instructions, or as a text."""
    if not led or asked[-len(led) :] == led:
        return asked
    said = {str(message.get("content")).strip() for message in led}
    is_repeated = all(str(message.get("content")).strip() in said for message in asked)
    return led if is_repeated else [*asked, *led]


def _others(row: Row, names: tuple[str, ...]) -> Example:
    return {name: found[1] for name in names if (found := row.take((name,)))}
