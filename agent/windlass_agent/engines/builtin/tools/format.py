"""Tool call syntax of chat templates."""

import re
from dataclasses import dataclass
from functools import cached_property

# Stands in a literal where the id of a call does.
ID = "\0"


@dataclass(frozen=True, kw_only=True)
class ToolFormat:
    """The text around names and arguments: `opening` name `middle` arguments `closing`.

    `link` stands between one call's arguments and the next one's name; None for a template that
    writes one call to a message.
    """

    opening: str
    middle: str
    link: str | None
    closing: str

    @property
    def literals(self) -> str:
        """All that is written besides names and arguments."""
        return self.opening + self.middle + (self.link or "") + self.closing

    @cached_property
    def trigger(self) -> str:
        """The text with which calls begin; empty where it is the brace of a JSON object."""
        return re.split(r"[\s{]", self.opening.lstrip(), maxsplit=1)[0].rstrip("[").rstrip(ID)

    @cached_property
    def head(self) -> str:
        """The part of `opening` after the trigger that every call of a message begins with."""
        at = self.opening.rfind("{")
        return self.opening[at:] if at >= 0 else ""


@dataclass(frozen=True, kw_only=True)
class ToolSupport:
    """Tool support of a chat template; `format` is None where calls look like plain text.

    `text_arguments`: the template wants a call's arguments as JSON text instead of an object.
    """

    tools: bool = False
    calls: bool = False
    results: bool = False
    text_arguments: bool = False
    format: ToolFormat | None = None
