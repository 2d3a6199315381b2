"""`--set KEY=VALUE`: settings of a job by their paths, typed by the server's own document."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.jobs.creation.document import JobDocument

_ROOT = {"$ref": "#/components/schemas/CreateJob"}
_KINDS = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list such as [a, b]",
    "object": "an object such as {a: 1}",
}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SUGGESTED = 3


def apply(document: JobDocument, openapi: Item, assignments: Sequence[str]) -> None:
    """Sets each KEY=VALUE, in order; raises Problem for a wrong name or value."""
    for assignment in assignments:
        schema = JobSchema(openapi, foreign=document.is_foreign)
        document.set(*schema.parse(assignment))


class JobSchema:
    """The schema of a job's document, of a server's /openapi.json."""

    def __init__(self, openapi: Item, *, foreign: bool = False):
        """`foreign` lets settings of a backend pass that the document does not describe."""
        self._schemas = openapi["components"]["schemas"]
        self._foreign = foreign

    def parse(self, assignment: str) -> tuple[list[str], Any]:
        """The steps and the value of KEY=VALUE; raises Problem."""
        path, sign, text = assignment.partition("=")
        if not path or not sign:
            raise Problem(f"--set {assignment!r} must have the form KEY=VALUE.", USAGE)
        steps, kinds = self._find(path)
        return steps, _value(path, text, kinds)

    def _find(self, path: str) -> tuple[list[str], list[Item]]:
        """The steps of a path, and the alternatives of what is there."""
        steps, kinds = path.split("."), self._alternatives(_ROOT)
        around = kinds
        for done, step in enumerate(steps):
            kinds = self._inside(kinds, step)
            if not kinds:
                raise Problem(f"There is no setting {path!r}.{self._meant(path)}", USAGE)
            if _is_map(around) and not _holds(kinds):
                # The key of a text, as in metadata, may have dots.
                return [*steps[:done], ".".join(steps[done:])], kinds
            around = kinds
        return steps, kinds

    def _alternatives(self, schema: Item) -> list[Item]:
        if "$ref" in schema:
            return self._alternatives(self._schemas[schema["$ref"].rpartition("/")[2]])
        if "anyOf" in schema:
            return [inner for one in schema["anyOf"] for inner in self._alternatives(one)]
        return [schema]

    def _inside(self, kinds: Sequence[Item], step: str) -> list[Item]:
        found: list[Item] = []
        described = any("properties" in kind for kind in kinds)
        for kind in kinds:
            if kind.get("type") == "array" and step.isdigit():
                found += self._alternatives(kind.get("items", {}))
            elif "properties" in kind:
                found += self._alternatives(kind["properties"].get(step, {"anyOf": []}))
            elif _is_free(kind):
                # Beside what is described, it stands for backends that are not ours.
                found += [{}] if self._foreign or not described else []
            elif isinstance(kind.get("additionalProperties"), dict):
                found += self._alternatives(kind["additionalProperties"])
        return found

    def _meant(self, path: str) -> str:
        # Several backends have the same settings.
        known = list(dict.fromkeys(self._paths(_ROOT, "", ())))
        leaf = path.rpartition(".")[2]
        near = [one for one in known if one.rpartition(".")[2] == leaf]
        near = near or get_close_matches(path, known, n=1, cutoff=0.8)
        if not near:
            leaves = {one.rpartition(".")[2]: one for one in reversed(known)}
            near = [leaves[one] for one in get_close_matches(leaf, leaves, n=1)]
        return f" Did you mean {' or '.join(near[:_SUGGESTED])}?" if near else ""

    def _paths(self, schema: Item, at: str, above: tuple[str, ...]) -> Iterator[str]:
        """The paths of all settings, without those of types within themselves."""
        for kind in self._alternatives(schema):
            title = kind.get("title", "")
            if kind.get("type") == "array" and at:
                yield from self._paths(kind.get("items", {}), f"{at}.0", above)
            for name, inner in kind.get("properties", {}).items():
                path = f"{at}.{name}" if at else name
                yield path
                if title not in above:
                    yield from self._paths(inner, path, (*above, title))


def _is_free(kind: Item) -> bool:
    """Returns True for what may hold anything."""
    if kind.get("type", "object") != "object" or "enum" in kind:
        return False
    return "properties" not in kind and not isinstance(kind.get("additionalProperties"), dict)


def _is_map(kinds: Sequence[Item]) -> bool:
    return any(isinstance(kind.get("additionalProperties"), dict) for kind in kinds)


def _holds(kinds: Sequence[Item]) -> bool:
    return any(kind.get("type", "object") in ("object", "array") for kind in kinds)


def _value(path: str, text: str, kinds: Sequence[Item]) -> Any:
    """The text as a value of one of the kinds; raises Problem."""
    types = {kind.get("type", "" if "enum" in kind else "any") for kind in kinds}
    choices = [choice for kind in kinds for choice in kind.get("enum", ())]
    if text in choices:
        return text
    if text == "null" and "null" in types:
        return None
    if text in ("true", "false") and "boolean" in types:
        return text == "true"
    if re.fullmatch(r"[+-]?\d+", text) and types & {"integer", "number"}:
        return int(text)
    if _NUMBER.fullmatch(text) and "number" in types:
        return float(text)
    if types & {"array", "object", "any"}:
        loaded = _loaded(path, text)
        if "any" in types or type(loaded) in (list, dict):
            return loaded
    if any(kind.get("type") == "string" and "enum" not in kind for kind in kinds):
        return text
    wanted = [repr(choice) for choice in choices]
    wanted += [words for kind, words in _KINDS.items() if kind in types and kind != "string"]
    near = get_close_matches(text, map(str, choices), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise Problem(f"--set {path}: {text!r} is not {' or '.join(wanted)}.{hint}", USAGE)


def _loaded(path: str, text: str) -> Any:
    import json

    import yaml

    try:
        found = yaml.safe_load(text)
        json.dumps(found, allow_nan=False)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        raise Problem(f"--set {path}: {text!r} is neither YAML nor JSON.", USAGE) from None
    return found
