"""Finds a chat template's tool format by what it renders of an example."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.builtin.tools.format import ID, ToolFormat, ToolSupport

Messages = list[dict[str, Any]]
Render = Callable[[Messages, list[dict[str, Any]] | None, bool], Awaitable[str]]
"""Renders messages and tools, with the prompt for an answer or not; raises ApiError."""

_NAMES = ("sample_first", "sample_second")
# Nine characters, which is what Mistral's templates insist on.
_IDS = ("sampleid1", "sampleid2")
_ARGUMENTS = ({"sample_key": "sample_1"}, {"sample_key": "sample_2"})
_RESULT = "sample_result"
_ASKED = {"role": "user", "content": "sample question"}
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "A sample.",
            "parameters": {"type": "object", "properties": {"sample_key": {"type": "string"}}},
        },
    }
    for name in _NAMES
]
# What templates of reasoning models put before an answer that has no reasoning.
_NO_REASONING = re.compile(r"\s*<think>\s*</think>\s*")


async def learn(render: Render, *, ends: tuple[str, ...]) -> ToolSupport:
    """A template's support of tools; `ends` are the texts of the tokens that end an answer."""
    prompt = await _try(render, [_ASKED], generation_prompt=True)
    with_tools = prompt is not None and _NAMES[0] in prompt
    for as_text in (False, True):
        one = await _turn(render, prompt or "", 1, as_text=as_text)
        if one is not None:
            break
    else:
        return ToolSupport(tools=with_tools)
    two = await _turn(render, prompt or "", 2, as_text=as_text)
    answered = await _try(render, [_ASKED, _calls(1, as_text=as_text), _result()])
    return ToolSupport(
        tools=with_tools,
        calls=True,
        results=answered is not None and _RESULT in answered,
        text_arguments=as_text,
        format=_format(one, two, ends),
    )


async def _try(
    render: Render,
    messages: Messages,
    *,
    tools: list[dict[str, Any]] | None = _TOOLS,
    generation_prompt: bool = False,
) -> str | None:
    try:
        return await render(messages, tools, generation_prompt)
    except ApiError:
        return None


async def _turn(render: Render, prompt: str, count: int, *, as_text: bool) -> str | None:
    """The rendered text of an assistant's `count` calls, from the turn's beginning to the end."""
    text = await _try(render, [_ASKED, _calls(count, as_text=as_text)])
    if text is None:
        return None
    turn = text[_common(text, prompt) :]
    if not all(name in turn for name in _NAMES[:count]) or "sample_1" not in turn:
        return None
    return turn


def _common(one: str, other: str) -> int:
    """Length of the beginning that two texts share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _calls(count: int, *, as_text: bool) -> dict[str, Any]:
    calls = [
        {
            "id": _IDS[index],
            "type": "function",
            "function": {
                "name": _NAMES[index],
                "arguments": json.dumps(_ARGUMENTS[index]) if as_text else _ARGUMENTS[index],
            },
        }
        for index in range(count)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result() -> dict[str, Any]:
    return {"role": "tool", "name": _NAMES[0], "tool_call_id": _IDS[0], "content": _RESULT}


def _format(one: str, two: str | None, ends: tuple[str, ...]) -> ToolFormat | None:
    cut = _cut(_NO_REASONING.sub("", one, count=1), 0)
    if cut is None:
        return None
    opening, middle, closing = cut
    stops = [at for end in ends if end and (at := closing.find(end)) >= 0]
    closing = closing[: min(stops)] if stops else closing.rstrip()
    link = _link(_NO_REASONING.sub("", two, count=1), opening, middle) if two else None
    return ToolFormat(
        opening=_blank(opening), middle=_blank(middle), link=link, closing=_blank(closing)
    )


def _link(two: str, opening: str, middle: str) -> str | None:
    """The text between two calls; None when they are not written as one is."""
    first = _cut(two, 0)
    second = _cut(first[2], 1) if first else None
    if not first or not second or first[:2] != (opening, middle):
        return None
    return _blank(second[0]) if _blank(second[1]) == _blank(middle) else None


def _cut(text: str, index: int) -> tuple[str, str, str] | None:
    """The texts before a call's name, between it and the arguments, and after them."""
    before, named, rest = text.partition(_NAMES[index])
    found = re.search(r'\{\s*"sample_key"\s*:\s*"sample_\d"\s*\}', rest)
    if not named or not found or json.loads(found[0]) != _ARGUMENTS[index]:
        return None
    return before, rest[: found.start()], rest[found.end() :]


def _blank(text: str) -> str:
    for one in _IDS:
        text = text.replace(one, ID)
    return text


class Learner:
    """Learns what one template can do, once, when it is first asked."""

    def __init__(self, render: Render, *, ends: tuple[str, ...]):
        self._render = render
        self._ends = ends
        self._learned: ToolSupport | None = None
        self._lock = asyncio.Lock()

    async def support(self) -> ToolSupport:
        """The template's support of tools."""
        async with self._lock:
            if self._learned is None:
                self._learned = await learn(self._render, ends=self._ends)
        return self._learned
