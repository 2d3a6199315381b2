"""Calls read out of an answer while it is written."""

import json
import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass

from windlass_agent.engines.builtin.text.detokenize import overlap
from windlass_agent.engines.builtin.tools.format import ID, ToolFormat

# After so much text without a call's beginning it is looked for once more, at the end.
LONGEST_HEAD = 4096
_ID_LETTERS = string.ascii_letters + string.digits
_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """A piece of call number `index`: `id` and `name` come with the first, arguments are JSON."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


Event = str | CallDelta


class ToolCallParser:
    """Splits the text of one answer into content and calls of the functions called `names`.

    What looks like a call and is none, or is one of no known function, is content. With
    `single`, calls after the first are dropped.
    """

    def __init__(self, style: ToolFormat, names: Sequence[str], *, single: bool):
        self._style = style
        self._names = names
        self._single = single
        self._head = _head(style, names)
        self._buffer = ""
        self._calls = 0
        self._in_calls = False
        self._content = False
        self._arguments: JsonScanner | None = None

    @property
    def called(self) -> bool:
        """True if there was a call."""
        return self._calls > 0

    def push(self, text: str) -> list[Event]:
        """The events that `text` settles."""
        self._buffer += text
        events: list[Event] = []
        while True:
            before = (self._buffer, self._in_calls)
            if self._arguments is not None:
                events += self._read_arguments(self._arguments)
            elif self._in_calls:
                events += self._read_head()
            else:
                events += self._read_content()
            if (self._buffer, self._in_calls) == before:
                return events

    def finish(self) -> list[Event]:
        """The events left at the end of the answer."""
        rest, self._buffer = self._buffer, ""
        if self._arguments is not None:
            return self._emit(self._arguments.flush())
        if self._in_calls and (found := self._whole_calls(rest)):
            return found
        if self._in_calls and self.called:
            rest = re.sub(rf"^\s*{_flexible(self._style.closing)}", "", rest, count=1)
            return [] if self._single or self._is_closing(rest) else [rest]
        trigger = self._style.trigger if self._in_calls else ""
        return [trigger + rest] if trigger + rest else []

    def _is_closing(self, rest: str) -> bool:
        """Returns True if nothing is left but a part of what closes calls."""
        closing, left = ("".join(text.split()) for text in (self._style.closing, rest))
        return closing.startswith(left) or not left.strip("}],")

    def _read_content(self) -> list[Event]:
        if not self._style.trigger:
            return self._read_bare()
        before, found, after = self._buffer.partition(self._style.trigger)
        if found:
            self._in_calls, self._buffer = True, after
            return self._text(before.rstrip())
        held = overlap(before, self._style.trigger)
        # Blanks wait, so that those before a call are no content.
        settled = before[: len(before) - held].rstrip()
        self._buffer = before[len(settled) :]
        return self._text(settled)

    def _read_bare(self) -> list[Event]:
        """A format without a trigger: only an answer that begins with a brace can be a call."""
        start = self._buffer.lstrip()
        if not start:
            return []
        if start[0] == "{" and not self._content:
            self._in_calls = True
            return []
        text, self._buffer = self._buffer, ""
        return self._text(text)

    def _text(self, text: str) -> list[Event]:
        self._content = self._content or bool(text)
        return [text] if text else []

    def _read_head(self) -> list[Event]:
        if len(self._buffer) > LONGEST_HEAD or (self._single and self.called):
            return []
        found = self._head.search(self._buffer)
        if not found:
            return []
        self._buffer = self._buffer[found.end() :]
        self._arguments = JsonScanner()
        return [self._begin(found[1])]

    def _begin(self, name: str) -> CallDelta:
        self._calls += 1
        # Nine letters and digits: Mistral's templates take no other ids back.
        made = "".join(secrets.choice(_ID_LETTERS) for _ in range(9))
        return CallDelta(index=self._calls - 1, id=made, name=name)

    def _read_arguments(self, scanner: "JsonScanner") -> list[Event]:
        text, self._buffer = scanner.push(self._buffer)
        if scanner.complete:
            self._arguments = None
        return self._emit(text)

    def _emit(self, text: str) -> list[Event]:
        return [CallDelta(index=self._calls - 1, arguments=text)] if text else []

    def _whole_calls(self, text: str) -> list[Event]:
        """Calls that are JSON objects with their members in any order."""
        events: list[Event] = []
        at = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=-1)
        if at < 0 or (self._single and self.called):
            return events
        try:
            value, _ = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            return events
        for call in value if isinstance(value, list) else [value]:
            found = isinstance(call, dict) and [call[key] for key in _ARGUMENTS if key in call]
            if found and call.get("name") in self._names:
                events.append(self._begin(call["name"]))
                arguments = found[0] if isinstance(found[0], str) else json.dumps(found[0])
                events += self._emit(arguments)
                if self._single:
                    break
        return events


class JsonScanner:
    """Finds the end of one JSON value that comes in pieces; one that is a string is decoded."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._is_string: bool | None = None
        self._held = ""
        self.complete = False

    def push(self, text: str) -> tuple[str, str]:
        """The part of `text` that is the value's, and the rest."""
        for at, character in enumerate(text):
            if self._is_string is None:
                self._is_string = character == '"'
            if self._step(character):
                self.complete = True
                return self._settle(text[: at + 1]), text[at + 1 :]
        return self._settle(text), ""

    def flush(self) -> str:
        """The beginning of a quoted value that never ended."""
        return self._held[1:]

    def _settle(self, text: str) -> str:
        if not self._is_string:
            return text
        self._held += text
        if not self.complete:
            return ""
        try:
            return str(json.loads(self._held))
        except ValueError:
            return self._held

    def _step(self, character: str) -> bool:
        """Takes a character; whether the value ends with it."""
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self._in_string = False
                return self._depth == 0
            return False
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False


def _head(style: ToolFormat, names: Sequence[str]) -> re.Pattern[str]:
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf'{_flexible(style.head)}({known}){_flexible(style.middle)}(?=[\[{{"])')


def _flexible(literal: str) -> str:
    """A pattern for the literal with blanks where a model may put others, and with any id."""
    parts = []
    for part in re.split(rf"(\s+|{ID}|[{{}}\[\]:,])", literal):
        if part == ID:
            parts.append(r"[\w-]*")
        elif part and part in "{}[]:,":
            parts.append(rf"\s*{re.escape(part)}\s*")
        else:
            parts.append(r"\s*" if part.isspace() else re.escape(part))
    return re.sub(r"(?:\\s\*)+", lambda _: r"\s*", "".join(parts))
