"""Paths of resources, safe whatever an id holds."""

from urllib.parse import quote


def at(collection: str, *parts: str) -> str:
    """`collection/part/…` with every part as one segment; raises ValueError for what is no id."""
    for part in parts:
        if part in ("", ".", ".."):
            raise ValueError(f"{part!r} is not an id")
    return "/".join((collection, *(quote(part, safe=":@") for part in parts)))
