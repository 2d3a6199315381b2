"""Every flag of TRL's scripts, by release and method: what the parser of each release said.

`tests/contract/test_trl_parser.py` holds the files to the parser of the TRL that is installed.

May import `versions` beside it, and nothing else of Windlass.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from windlass.backends.trl.versions import VERSIONS


@cache
def parser_flags(version: str) -> Mapping[str, frozenset[str]]:
    """Returns the flags of each method, with `_` and without `--`; empty for other releases."""
    if version not in VERSIONS:
        return {}
    text = files(__package__).joinpath(f"{version}.json").read_text()
    found: dict[str, list[str]] = json.loads(text)
    common = found.pop("common")
    return {method: frozenset(common) | frozenset(flags) for method, flags in found.items()}
