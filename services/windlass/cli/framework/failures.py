"""Failures of commands: one line on stderr, and an exit code.

0 done · 1 the server refused, or the job failed · 2 usage · 3 unreachable ·
130 interrupted.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from windlass.client.display.text import printable

if TYPE_CHECKING:
    from windlass.client.errors import WindlassError

REFUSED, USAGE, UNREACHABLE, INTERRUPTED = 1, 2, 3, 130

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_UNTRUSTED_HINT = "Name its authority with --ca."
_OTHER_HINT = "--base-url or --context names another one."


class Problem(Exception):
    """A reason to stop that the command found itself."""

    def __init__(self, message: str, code: int = REFUSED):
        super().__init__(message)
        self.code = code


@contextmanager
def reported() -> Iterator[None]:
    """Turns every expected error into its line and exit code."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except typer.Abort as error:
        typer.echo(err=True)
        raise typer.Exit(INTERRUPTED) from error
    except Exception as error:
        told = explain(error)
        if told is None:
            raise
        line, code = told
        complain(line)
        raise typer.Exit(code) from error


def complain(line: str) -> None:
    """Prints one line to stderr."""
    sys.stdout.flush()
    typer.echo(f"windlass: {printable(' '.join(line.split()))}", err=True)


def unforeseen(error: Exception) -> int:
    """Keeps the traceback of an error that nobody foresaw in a file; returns the exit code."""
    import os
    import tempfile
    import traceback

    descriptor, path = tempfile.mkstemp(prefix="windlass-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(traceback.format_exception(error))
    said = str(error).partition("\n")[0]
    complain(f"Internal error: {type(error).__name__}: {said}. Please report it, with {path}.")
    return REFUSED


def explain(error: Exception) -> tuple[str, int] | None:
    """The line and exit code of an error; None for one that nobody foresaw."""
    from windlass.client.errors import ConnectionFailed, UnexpectedAnswer, WindlassError

    if isinstance(error, Problem):
        return str(error), error.code
    if isinstance(error, WindlassError):
        return describe(error), REFUSED
    if isinstance(error, UnexpectedAnswer):
        return f"{error}. Is this a Windlass server? {_OTHER_HINT}", UNREACHABLE
    if isinstance(error, ConnectionFailed):
        hint = _UNTRUSTED_HINT if _UNTRUSTED in str(error) else f"Is it running? {_OTHER_HINT}"
        return f"Could not reach the server: {str(error).removesuffix('.')}. {hint}", UNREACHABLE
    if isinstance(error, ModuleNotFoundError) and error.name and "windlass" not in error.name:
        return f"{error.name} is not installed: this needs windlass[server].", USAGE
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}", USAGE
    return None


def describe(error: "WindlassError") -> str:
    """A refusal as one line, with the request's id for the server's operator."""
    details = [
        error.code,
        error.param and f"param {error.param}",
        # The server's own errors name it already.
        error.request_id not in error.message and f"request {error.request_id}",
    ]
    within = ", ".join(detail for detail in details if detail)
    return f"{error.message} ({within or error.status})"
