"""A configuration file with every setting at its default, each explained in a comment."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windlass.core.config.schema import Setting, sections
from windlass.core.config.settings import Settings

_HEAD = """\
# The configuration of `windlass serve --config FILE`: every setting at its default. Keep what you
# change and leave out the rest, so that later releases may have better defaults. A variable wins
# over this file: http.port is WINDLASS_HTTP__PORT.
"""
_WIDTH = 98


def example() -> str:
    """Returns the whole file, as YAML."""
    return _HEAD + "".join(_lines())


def _lines() -> Iterator[str]:
    for section in sections(Settings, "WINDLASS_"):
        names = section.path.split(".") if section.path else []
        margin = "  " * len(names)
        yield "\n"
        if names:
            yield _comment(margin[2:], section.about)
            yield f"{margin[2:]}{names[-1]}:\n"
        for setting in section.settings:
            about = f"{setting.description} ({setting.kind.replace('`', '')})"
            yield _comment(margin, about)
            yield f"{margin}{setting.path.rpartition('.')[2]}: {_value(setting)}\n"


def _comment(margin: str, text: str) -> str:
    begin = f"{margin}# "
    return textwrap.fill(text, _WIDTH, initial_indent=begin, subsequent_indent=begin) + "\n"


def _value(setting: Setting) -> str:
    value: Any = setting.default
    return json.dumps(str(value) if isinstance(value, Path) else value)
