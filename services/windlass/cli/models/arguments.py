"""Arguments of engines as people write them on a command line."""

import json
from typing import Any

from windlass.cli.framework.values import pairs, size


def changed(arguments: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """Arguments with those of `NAME=VALUE` texts; one without a value is left out."""
    given = pairs(texts)
    kept = {name: value for name, value in arguments.items() if name not in given}
    return kept | {name: _value(name, text) for name, text in given.items() if text}


def _value(name: str, text: str) -> Any:
    """The value of a text, which the server checks; raises BadParameter for what is no size."""
    if name.endswith("_bytes"):
        return size(text)
    try:
        # JSON knows no NaN, and the request could not be sent with it.
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text
