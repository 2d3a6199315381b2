"""Removal of the machine's paths from text that a tenant reads."""

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# Not part of a URL, nor of a relative path; `file:///` and `unix:///` begin a path. No text takes
# more time than its length: tenants choose what trainers print.
_PATH = re.compile(r"(?:(?<![\w/.~-])|(?<=://))/(?:[\w.+@=~-]+/)+([\w.+@=~-]*)")
# What lies beneath is a library's own name for its file, which says where an error came from.
_LIBRARY = re.compile(r".*/(?:(?:site|dist)-packages|lib(?:64)?/python3(?:\.\d+)?)/")
_WORD = re.compile(r"^\S*")


def redact_paths(text: str, *folders: Path) -> str:
    """Returns text with paths relative to `folders`, libraries' to themselves, others' last name.

    The inputs of a job are named without the folder that they all lie in.
    """
    for folder in folders:
        text = text.replace(f"{folder}/inputs/", "").replace(f"{folder}/", "")
        text = text.replace(str(folder), ".")
    for source in _sources():
        text = text.replace(f"{source}/", "")
    return _PATH.sub(_shown, text)


def _shown(path: re.Match[str]) -> str:
    if library := _LIBRARY.match(path[0]):
        return path[0][library.end() :]
    return f".../{path[1]}"


def without_first_word(text: str) -> str:
    """Returns text that was cut from its middle without what may be half of a path."""
    return _WORD.sub("", text, count=1)


@cache
def _sources() -> frozenset[str]:
    """The folders that our own packages lie in."""
    specs = map(find_spec, ("windlass", "windlass_agent"))
    return frozenset(str(Path(spec.origin).parents[1]) for spec in specs if spec and spec.origin)
