"""Texts with `{{ item.name }}` and `{{ sample.output_text }}` in them.

A path goes on by `.name`, `[0]` or `["name"]`. What stands at its end is written as it is when
it is a text, else as JSON; nothing of what was put in is read as a template again.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from windlass.graders.faults import Fault, Ungradable
from windlass.graders.subject import Subject

# A short text may name a long value many times.
LONGEST = 262_144
_STEP = re.compile(
    r"\.(?P<name>[^\s.\[\]{}'\"]+)|\[(?P<index>\d{1,6})\]|\[(?P<q>['\"])(?P<key>[^'\"]+)(?P=q)\]"
)
_NAMESPACES = ("item", "sample")
_OF_SAMPLES = ("output_text", "output_json")


class InvalidTemplate(ValueError):
    """A text whose braces name nothing that could be there."""


@dataclass(frozen=True)
class Variable:
    """A path within a namespace."""

    written: str
    namespace: str
    steps: tuple[str | int, ...]

    def look_up(self, subject: Subject) -> str:
        """The variable's value as text; raises Ungradable."""
        value: Any = subject.item
        steps = self.steps
        if self.namespace == "sample":
            if steps[0] == "output_text":
                return subject.sample
            value, steps = subject.output_json, steps[1:]
        for step in steps:
            value = self._within(value, step)
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    def _within(self, value: Any, step: str | int) -> Any:
        is_there = (
            isinstance(value, list) and step < len(value)
            if isinstance(step, int)
            else isinstance(value, dict) and step in value
        )
        if is_there:
            return value[step]
        # A sample that leaves a field out is a bad answer; an item that does is a bad example.
        fault = Fault.SAMPLE_PARSE if self.namespace == "sample" else Fault.INVALID_VARIABLE
        raise Ungradable(fault, f"There is no {self.written}.")


@dataclass(frozen=True)
class Template:
    """A text's parts in order."""

    parts: tuple[str | Variable, ...]

    def fill(self, subject: Subject) -> str:
        """Returns the text for a subject; raises Ungradable for a missing variable, or LONGEST."""
        filled: list[str] = []
        room = LONGEST
        for part in self.parts:
            filled.append(part.look_up(subject) if isinstance(part, Variable) else part)
            room -= len(filled[-1])
            if room < 0:
                raise Ungradable(Fault.OTHER, f"A text exceeds {LONGEST} characters.")
        return "".join(filled)

    @property
    def of_item(self) -> tuple[Variable, ...]:
        """The variables that the dataset must bring."""
        return tuple(
            part for part in self.parts if isinstance(part, Variable) and part.namespace == "item"
        )


@lru_cache(maxsize=256)
def compile_template(text: str) -> Template:
    """Reads a text; raises InvalidTemplate."""
    first, *opened = text.split("{{")
    parts: list[str | Variable] = [first]
    for piece in opened:
        written, closed, after = piece.partition("}}")
        parts += (_variable(written.strip()), after) if closed else ("{{", piece)
    return Template(tuple(part for part in parts if part != ""))


def _variable(written: str) -> Variable:
    namespace = next((name for name in _NAMESPACES if re.match(rf"{name}\b", written)), None)
    if namespace is None:
        raise InvalidTemplate(f"{{{{{written[:64]}}}}} must begin with `item.` or `sample.`")
    steps: list[str | int] = []
    at = len(namespace)
    while at < len(written):
        step = _STEP.match(written, at)
        if step is None:
            raise InvalidTemplate(f"{{{{{written[:64]}}}}} is not a path such as item.answer")
        steps.append(int(step["index"]) if step["index"] else step["name"] or step["key"])
        at = step.end()
    if not steps:
        raise InvalidTemplate(f"{{{{{written[:64]}}}}} does not name a field")
    if namespace == "sample" and (
        steps[0] not in _OF_SAMPLES or (steps[1:] and steps[0] == "output_text")
    ):
        raise InvalidTemplate(
            f"{{{{{written[:64]}}}}}: a sample has only sample.output_text and the fields of "
            "sample.output_json"
        )
    return Variable(written, namespace, tuple(steps))
