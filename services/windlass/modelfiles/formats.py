"""Formats of a model's tool calls and reasoning, by its type and the marks of its chat template.

The table is data (`formats.json`): the first entry of a list that fits counts. The words are those
of vLLM's parsers, which is the engine that has to be told.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

_FILE = Path(__file__).with_name("formats.json")
# What is read of a chat template.
TEMPLATE_BYTES = 256 * 1024


class FormatRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A format, and what a model has that uses it: one of the types, and every mark."""

    format: str
    types: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()

    def fits(self, model_type: str, template: str) -> bool:
        """Returns True for a model of this format."""
        return (not self.types or model_type in self.types) and all(
            mark in template for mark in self.marks
        )


class FormatTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules, the first that fits counting."""

    tools: tuple[FormatRule, ...]
    reasoning: tuple[FormatRule, ...]


class Formats(msgspec.Struct, frozen=True):
    """The formats of a model; empty where none is known."""

    tools: str = ""
    reasoning: str = ""


UNKNOWN = Formats()


@cache
def known_formats() -> FormatTable:
    """Returns the table of this release."""
    return msgspec.json.decode(_FILE.read_bytes(), type=FormatTable)


def formats_of(model_type: str, template: str) -> Formats:
    """Returns the formats of a model; never by its name."""
    if not template:
        return UNKNOWN
    table = known_formats()
    tools, reasoning = (
        next((rule.format for rule in rules if rule.fits(model_type, template)), "")
        for rules in (table.tools, table.reasoning)
    )
    return Formats(tools, reasoning)


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
