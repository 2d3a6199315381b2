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


# What each means, for docs/reference/errors.md.
MEANINGS = {
    Reason.NOT_UTF8: "The file is not UTF-8; save it as such.",
    Reason.INVALID_JSON: "A line, or the file, is not valid JSON.",
    Reason.LINE_TOO_LONG: "A line is longer than an example may be; shorten or split it.",
    Reason.EMPTY_FILE: "The file has no example.",
    Reason.NOT_READABLE: "The file cannot be read as the format that its name says.",
    Reason.WRONG_FORMAT: "The examples are of another format than was asked for.",
    Reason.UNKNOWN_FORMAT: "The examples are of no known format; see the formats of datasets.",
    Reason.MIXED_FORMATS: "The examples are of several formats; put each into a file of its own.",
    Reason.INVALID_EXAMPLE: "An example lacks a field, or a field has a wrong value.",
    Reason.INVALID_MESSAGE: "A message lacks a field, or a field has a wrong value.",
    Reason.WRONG_ROLE: "A message's role is unknown, or does not follow the one before it.",
    Reason.NO_ASSISTANT_MESSAGE: "An example has no message of the assistant to learn from.",
}


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
