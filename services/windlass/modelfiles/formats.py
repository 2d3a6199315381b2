"""Formats of a model's tool calls and reasoning, by the marks of its chat template.

Where the model's family has a preset, that one's rules come first (`presets`). The rules of
`formats.json` hold whatever the type. The words are those of vLLM's parsers, which is the engine
that has to be told.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

_FILE = Path(__file__).with_name("formats.json")
# What is read of a chat template.
TEMPLATE_BYTES = 256 * 1024
# Names of parsers, which become arguments of a command.
_Word = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}\Z")]
_Mark = Annotated[str, Meta(min_length=1, max_length=64)]
Marks = Annotated[tuple[_Mark, ...], Meta(max_length=8)]


class FormatRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A format, and the marks that all are in the chat template of a model that uses it."""

    format: _Word
    marks: Marks = ()

    def fits(self, template: str) -> bool:
        """Returns True for a template of this format."""
        return all(mark in template for mark in self.marks)


class Formats(msgspec.Struct, frozen=True):
    """The formats of a model; empty where none is known."""

    tools: str = ""
    reasoning: str = ""


UNKNOWN = Formats()


@cache
def marked_tools() -> tuple[FormatRule, ...]:
    """Returns the formats of tool calls that have marks of their own, whatever the type."""
    return msgspec.json.decode(_FILE.read_bytes(), type=tuple[FormatRule, ...])


def formats_of(
    template: str, tools: Iterable[FormatRule] = (), reasoning: Iterable[FormatRule] = ()
) -> Formats:
    """Returns the formats of a template by a family's rules; the first that fits counts."""
    if not template:
        return UNKNOWN
    return Formats(_first((*tools, *marked_tools()), template), _first(reasoning, template))


def _first(rules: Iterable[FormatRule], template: str) -> str:
    return next((rule.format for rule in rules if rule.fits(template)), "")


def template_of(tokenizer_config: Mapping[str, Any]) -> str:
    """Returns the chat template of a tokenizer_config.json, those by name after one another."""
    given = tokenizer_config.get("chat_template")
    if isinstance(given, list):
        named = [one.get("template") for one in given if isinstance(one, dict)]
        return "\n".join(one for one in named if isinstance(one, str))
    return given if isinstance(given, str) else ""


def template_of_json(content: bytes) -> str:
    """Returns the chat template of such a file's bytes; empty where it is none."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    return template_of(document) if isinstance(document, dict) else ""
