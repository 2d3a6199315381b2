"""Errors of a fine-tuning file."""

from enum import StrEnum


class Reason(StrEnum):
    """Stable names of the faults; clients match on them."""

    NOT_UTF8 = "not_utf8"
    INVALID_JSON = "invalid_json"
    LINE_TOO_LONG = "line_too_long"
    EMPTY_FILE = "empty_file"
    NOT_READABLE = "not_readable"
    WRONG_FORMAT = "wrong_format"
    UNKNOWN_FORMAT = "unknown_format"
    MIXED_FORMATS = "mixed_formats"
    INVALID_EXAMPLE = "invalid_example"
    INVALID_MESSAGE = "invalid_message"
    WRONG_ROLE = "wrong_role"
    NO_ASSISTANT_MESSAGE = "no_assistant_message"


class DatasetError(Exception):
    """A file that cannot be trained on: the line (1-based), the reason, and a sentence.

    `param` is the place inside the example, as in `messages[2].role`; None for the whole line.
    """

    def __init__(
        self, message: str, *, reason: Reason, line: int | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason: str = reason
        self.line = line
        self.param = param

    def __str__(self) -> str:
        return self.message if self.line is None else f"Line {self.line}: {self.message}"
