"""The source of a python grader: read, and never run here."""

import ast
import warnings

# As OpenAI has it.
SOURCE_BYTES = 256_000
_SIGNATURE = "must define `def grade(sample, item)` at its top level"


class InvalidSource(ValueError):
    """A text that is no Python, or has no function that grades."""


def check_source(source: str) -> None:
    """Raises InvalidSource for what cannot grade, whatever its lines would do."""
    try:
        if len(source.encode()) > SOURCE_BYTES:
            raise InvalidSource(f"exceeds {SOURCE_BYTES} bytes")
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except SyntaxError as error:
        raise InvalidSource(f"is not valid Python: {error.msg} (line {error.lineno})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, InvalidSource):
            raise
        raise InvalidSource("is not valid Python, or is nested too deeply") from None
    # The last one is what the name stands for.
    functions = [
        each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "grade"
    ]
    if not functions:
        raise InvalidSource(_SIGNATURE)
    if not _takes_two(functions[-1].args):
        raise InvalidSource(f"{_SIGNATURE}, but its grade takes other arguments")


def _takes_two(arguments: ast.arguments) -> bool:
    positional = [*arguments.posonlyargs, *arguments.args]
    needed = len(positional) - len(arguments.defaults)
    most = float("inf") if arguments.vararg else len(positional)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return needed <= 2 <= most and all(default is not None for _, default in keywords)
