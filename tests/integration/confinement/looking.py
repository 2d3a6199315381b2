"""A backend of another distribution, whose trainer is a program that a test wrote.

It stands in the place of torch, which would look around only where a model leads it.
"""

import json
from pathlib import Path
from typing import Any

_BACKEND = """
from dataclasses import dataclass
from typing import ClassVar
from windlass.backends import TRLConfig, register_backend

@register_backend("looking")
@dataclass(frozen=True)
class LookingConfig(TRLConfig):
    posts_status: ClassVar[bool] = {posts_status!r}

    def to_command(self, context=None):
        return ({python!r}, "-c", {code!r})

    def to_args(self, context=None):
        return [str(context.output)]
"""
NAME = "looking"


def plug_in(site: Path, python: str, code: str, *, posts_status: bool = False) -> None:
    """Installs the backend in a new folder; its trainer gets the folder for its output."""
    record = site / "looking-1.dist-info"
    record.mkdir(parents=True)
    module = _BACKEND.format(python=python, code=code, posts_status=posts_status)
    (site / "looking.py").write_text(module)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: looking\nVersion: 1\n")
    (record / "entry_points.txt").write_text(
        f"[windlass.llm_backends]\n{NAME} = looking:LookingConfig\n"
    )


def found(log: Path) -> dict[str, Any]:
    """What a program says that it found, a line of JSON after the word FOUND."""
    lines = log.read_text().splitlines()
    line = next((line for line in lines if line.startswith("FOUND ")), None)
    assert line is not None, lines
    read: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return read
