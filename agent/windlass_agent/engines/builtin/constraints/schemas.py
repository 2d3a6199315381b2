"""JSON schemas of tenants: bounded, and refused where a keyword cannot be enforced."""

import json
import re
from typing import Any

MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_PROPERTIES = 1000
MAX_MULTIPLE = 10_000

# At most one space where JSON allows any: a model cannot fill an answer with blanks.
_OPTIONS = {
    "whitespace_pattern": "[ ]",
    "whitespace_flexible": True,
    "lenient": False,
    "coerce_one_of": False,
}
# Keywords whose values are schemas by names that are not keywords.
_NAMED = ("properties", "patternProperties", "$defs", "definitions")
# Keywords whose values are no schemas.
_PLAIN = ("enum", "const", "default", "examples", "required")
# What zod says of an e-mail address, and the same without look-ahead, which no automaton has.
_DOMAIN = r"@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
_REWRITTEN = {
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]" + _DOMAIN: (
        r"^([A-Za-z0-9_'+\-]+\.)*[A-Za-z0-9_'+\-]*[A-Za-z0-9_+\-]" + _DOMAIN
    )
}


class InvalidSchema(Exception):
    """A schema that cannot be followed; the text is a sentence for its author."""


def json_grammar(schema: dict[str, Any]) -> str:
    """The schema as part of a Lark grammar; raises InvalidSchema for one that is too large."""
    if len(json.dumps(schema)) > MAX_BYTES:
        raise InvalidSchema(f"The schema is larger than {MAX_BYTES // 1024} KiB.")
    if "x-guidance" in schema:
        raise InvalidSchema("The keyword 'x-guidance' is not supported.")
    return "%json " + json.dumps({**_Rewriting().schema(schema, 0), "x-guidance": _OPTIONS})


class _Rewriting:
    """Rewrites a schema while it counts what makes one dear."""

    def __init__(self) -> None:
        self._properties = 0

    def schema(self, node: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"The schema is nested more than {MAX_DEPTH} levels deep.")
        if isinstance(node, list):
            return [self.schema(one, depth + 1) for one in node]
        if not isinstance(node, dict):
            return node
        return {
            key: self._value(key, value, depth)
            for key, value in node.items()
            if not (key == "propertyNames" and value == {"type": "string"})
        }

    def _value(self, key: str, value: Any, depth: int) -> Any:
        if key in _PLAIN:
            return value
        if key in _NAMED and isinstance(value, dict):
            self._properties += len(value)
            if self._properties > MAX_PROPERTIES:
                raise InvalidSchema(f"The schema has more than {MAX_PROPERTIES} properties.")
            return {name: self.schema(one, depth + 1) for name, one in value.items()}
        if key == "pattern" and isinstance(value, str):
            return _REWRITTEN.get(value, value)
        if key == "multipleOf" and isinstance(value, int | float) and value > MAX_MULTIPLE:
            raise InvalidSchema(f"'multipleOf' may be at most {MAX_MULTIPLE}.")
        return self.schema(value, depth + 1)


def sentence(error: str) -> str:
    """The compiler's `error` in words for the author of a schema."""
    # After its reason it quotes the grammar, which is the author's own.
    error = re.split(r"\n *\d+ \| ", error, maxsplit=1)[0]
    if keys := re.search(r"Unimplemented keys: \[([^\]]*)\]", error):
        return f"These keywords cannot be enforced: {keys[1].replace(chr(34), chr(39))}."
    if name := re.search(r"Unknown format: (\S+)", error):
        return f"The format '{name[1]}' cannot be enforced."
    if kind := re.search(r"Invalid type: (\S+)", error):
        return f"'{kind[1]}' is not a JSON Schema type."
    if keyword := re.search(r"Expected .* for '(\w+)'", error):
        return f"The value of '{keyword[1]}' is of the wrong kind."
    for fragment, meaning in _MEANINGS.items():
        if fragment in error:
            return meaning
    return "Its keywords contradict each other, or cannot be enforced together."


_MEANINGS = {
    "look-around": "Patterns with look-ahead or look-behind cannot be enforced.",
    "backreferences": "Patterns with back-references cannot be enforced.",
    "oneOf": "'oneOf' can be enforced only where its branches exclude each other; use 'anyOf'.",
    "regex parse error": "A pattern is not a regular expression that can be enforced.",
    "nsatisfiable": "No value satisfies it.",
    "too large": "It is too large to be enforced.",
    "too complex": "It is too large to be enforced.",
    "fuel": "It is too large to be enforced.",
    "recursion limit": "It is nested too deeply.",
    "circular references": "A '$ref' that leads back to itself cannot be enforced.",
    "not disjoint": "Patterns of 'patternProperties' must exclude each other.",
    "not present in a registry": "A '$ref' may only point into the schema itself.",
    "Pointer": "A '$ref' points nowhere.",
}
