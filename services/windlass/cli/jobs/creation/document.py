"""The body that creates a job, put together of a file and of options."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.jobs.methods import MethodName

STDIN = Path("-")
_OPENAI = (MethodName.SUPERVISED, MethodName.DPO, MethodName.REINFORCEMENT)
_BACKENDS = ("trl", "torchtune")


class JobDocument:
    """A body that grows; what is put in later wins."""

    def __init__(self, body: Item):
        self.body = body

    @property
    def method(self) -> str:
        """The method that it asks for; `supervised` where it says none."""
        ours = self.get("windlass.method")
        # The usual algorithm of reinforcement.
        asked = self.get("method.type") if ours in (None, "grpo") else ours
        return str(asked or MethodName.SUPERVISED.value)

    @property
    def is_foreign(self) -> bool:
        """Returns True where its backend is none of ours, which has settings of its own."""
        backend = self.get("windlass.backend") or self.get("windlass.runtime")
        return backend not in (None, *_BACKENDS)

    def get(self, path: str) -> Any:
        """The value at a dotted path; None where there is none."""
        found: Any = self.body
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        return found

    def put(self, values: Mapping[str, Any]) -> None:
        """Sets values by their dotted paths, but for those that are None or empty."""
        for path, value in values.items():
            if value not in (None, "", [], {}):
                self.set(path.split("."), value)

    def take(self, path: str) -> Any:
        """Removes the value at a dotted path and returns it; None where there is none."""
        around, _, name = path.rpartition(".")
        holder = self.get(around) if around else self.body
        return holder.pop(name, None) if isinstance(holder, dict) else None

    def merge(self, other: Item) -> None:
        """Takes another document's fields: objects are merged, anything else is replaced."""
        self.body = _merged(self.body, other)

    def set(self, steps: list[str], value: Any) -> None:
        """Sets one value; raises Problem where something on its way holds no fields."""
        holder: Any = self.body
        for done, step in enumerate(steps):
            key = _key(holder, step, ".".join(steps[: done + 1]))
            if done + 1 == len(steps):
                holder[key] = value
                return
            if holder[key] is None:
                holder[key] = [] if steps[done + 1].isdigit() else {}
            holder = holder[key]

    def choose(self, method: MethodName) -> None:
        """Sets the method, in OpenAI's place or in ours."""
        if method not in _OPENAI:
            self.put({"windlass.method": method.value})
        elif isinstance(ours := self.body.get("windlass"), dict):
            ours.pop("method", None)
        if method in _OPENAI or method is MethodName.RLOO:
            self.put({"method.type": _openai(method)})
        elif set(self.body.get("method") or ()) <= {"type"}:
            self.body.pop("method", None)

    def tune(self, hyperparameters: Mapping[str, Any]) -> None:
        """Sets OpenAI's hyperparameters where those of the method belong."""
        given = {name: value for name, value in hyperparameters.items() if value is not None}
        if not given:
            return
        at, kind = "hyperparameters", _openai(self.method)
        if kind and at not in self.body:
            self.put({"method.type": kind})
            at = f"method.{kind}.{at}"
        self.put({f"{at}.{name}": value for name, value in given.items()})


def _merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    both = {name: _merged(below[name], above[name]) for name in below.keys() & above.keys()}
    return {**below, **above, **both}


def _openai(method: str) -> str:
    """OpenAI's name of a method; empty where it has none."""
    if method == MethodName.RLOO:
        return MethodName.REINFORCEMENT.value
    return method if method in _OPENAI else ""


def _key(holder: Any, step: str, path: str) -> Any:
    """The key of a step in an object or an array, which then has it; raises Problem."""
    if isinstance(holder, dict):
        holder.setdefault(step, None)
        return step
    if isinstance(holder, list) and step.isdigit() and int(step) <= len(holder):
        if int(step) == len(holder):
            holder.append(None)
        return int(step)
    raise Problem(
        f"{path} cannot be set: what is around it is neither an object nor an array.", USAGE
    )


def read(file: Path) -> Item:
    """The document in a YAML or JSON file, or on stdin; raises Problem."""
    import yaml

    name = "stdin" if file == STDIN else str(file)
    try:
        found = yaml.safe_load(sys.stdin.read() if file == STDIN else file.read_text())
        # YAML has dates and values that hold themselves, which no request can have.
        json.dumps(found, allow_nan=False)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise Problem(f"{name} is neither YAML nor JSON of a job: {why}.", USAGE) from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise Problem(f"{name} must hold one object: the fields of a job.", USAGE)
    return found
