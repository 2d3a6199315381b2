"""Tags of keys: names with values, by which people find them; pure."""

import re
from collections.abc import Mapping

from windlass.bounds import MAX_KEY_TAGS, TAG_LENGTH, TAG_NAME_LENGTH
from windlass.core.errors import InvalidArgument

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{TAG_NAME_LENGTH - 1}}}")
_VALUE = re.compile(rf"[A-Za-z0-9_.:/@+-]([A-Za-z0-9 _.:/@+-]{{0,{TAG_LENGTH - 1}}})")


def valid_tags(pairs: Mapping[str, str]) -> tuple[str, ...]:
    """Tags as `name=value`, sorted; raises InvalidArgument."""
    if len(pairs) > MAX_KEY_TAGS:
        raise InvalidArgument(f"tags may have {MAX_KEY_TAGS} entries.", param="tags")
    for name, value in pairs.items():
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise InvalidArgument(
                f"{f'{name}={value}'[:100]!r} is not a tag. A name has up to {TAG_NAME_LENGTH} "
                f"letters, digits, _, . and -, and a value up to {TAG_LENGTH}, with : / @ + and "
                "spaces.",
                param="tags",
            )
    return tuple(sorted(f"{name}={value}" for name, value in pairs.items()))
