"""Grammars of answers that call functions, in the words of llguidance's Lark."""

import json
import re
from collections.abc import Mapping, Sequence

from windlass_agent.engines.builtin.tools.format import ID, ToolFormat

_TEXT = "TEXT: /(.|\\n)*/"


def calls_grammar(
    style: ToolFormat,
    functions: Sequence[tuple[str, str]],
    *,
    special: Mapping[str, int],
    parallel: bool,
    otherwise: str | None = None,
) -> str:
    """Returns the grammar of one call, or of several if `parallel`.

    `otherwise` is the body of a rule that is allowed instead.
    `functions`: names, each with the grammar of its arguments. `special`: ids of the tokens that
    are no text. An `otherwise` of "TEXT" is any text, which may also come before the calls.
    """
    literal = _Literals(special)
    more = f"({literal(style.link)} call)*" if parallel and style.link is not None else ""
    rest = f"call {more} {literal(style.closing)}"
    rules = [f"f{index}: {literal(name)} {literal(style.middle)} {arguments}"
             for index, (name, arguments) in enumerate(functions)]  # fmt: skip
    rules.append("call: " + " | ".join(f"f{index}" for index in range(len(functions))))
    if otherwise == "TEXT":
        rules += _after_text(style, rest, literal)
    else:
        rules.append(f"calls: {literal(style.opening)} {rest}")
        rules.append("start: calls" + (f" | answer\nanswer: {otherwise}" if otherwise else ""))
    return "\n".join(rules)


def _after_text(style: ToolFormat, rest: str, literal: "_Literals") -> list[str]:
    """Rules for text and, from the trigger on, calls."""
    trigger = style.trigger
    if not trigger:
        # An answer that begins with a brace is a call; templates without a trigger mean that.
        return [
            f"calls: {literal(style.opening)} {rest}",
            "ANSWER: /([^{ \\n](.|\\n)*)?/",
            "start: calls | ANSWER",
        ]
    _, _, opening = style.opening.partition(trigger)
    if literal.is_special(trigger):
        begin = f"TEXT {literal(trigger)}"
        rules = [_TEXT]
    else:
        begin = "head"
        rules = [_TEXT, f"head[lazy]: /(.|\\n)*/ {literal(trigger)}"]
    return [*rules, f"start: TEXT | {begin} {literal(opening)} {rest}"]


class _Literals:
    """Writes texts, with ids of calls and special tokens in them, as grammar."""

    def __init__(self, special: Mapping[str, int]):
        self._special = special
        known = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
        self._split = re.compile(f"({ID}|{known})" if known else f"({ID})")

    def __call__(self, text: str) -> str:
        return " ".join(self._part(part) for part in self._split.split(text) if part)

    def is_special(self, text: str) -> bool:
        """Returns True if there is a special token in `text`."""
        return any(token in text for token in self._special)

    def _part(self, part: str) -> str:
        if part == ID:
            return "/[a-zA-Z0-9]{9}/"
        if part in self._special:
            return f"<[{self._special[part]}]>"
        return json.dumps(part, ensure_ascii=False)
