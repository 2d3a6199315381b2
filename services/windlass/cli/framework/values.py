"""Values as people write them on a command line."""

import re

import typer

AUTO = "auto"
_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZES |= {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def seconds(text: str | int) -> int:
    """Seconds of `90s`, `15m`, `12h`, `30d`, `2w` or a bare number; raises BadParameter."""
    # An option's default comes by here as well.
    if isinstance(text, int):
        return text
    found = re.fullmatch(r"(\d{1,9})([smhdw]?)", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration such as 15m, 12h or 30d.")
    return int(found[1]) * _UNITS[found[2] or "s"]


def size(text: str) -> int:
    """Bytes of `512Mi`, `64GiB`, `2G` or a bare number; raises BadParameter."""
    found = re.fullmatch(r"(\d{1,15})([kmgt]?i?)b?", text.strip().lower())
    if found is None or found[2] not in _SIZES:
        raise typer.BadParameter(f"{text!r} is not a size such as 512Mi or 64GiB.")
    return int(found[1]) * _SIZES[found[2]]


def whole(text: str) -> int | str:
    """A positive whole number or `auto`; raises BadParameter."""
    if text != AUTO and not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise typer.BadParameter(f"{text!r} is neither a positive whole number nor 'auto'.")
    return text if text == AUTO else int(text)


def real(text: str) -> float | str:
    """A positive number or `auto`; raises BadParameter."""
    if text == AUTO:
        return text
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise typer.BadParameter(f"{text!r} is neither a positive number nor 'auto'.")
    return number


def pairs(texts: list[str] | None) -> dict[str, str]:
    """`k=v` texts as a mapping; raises BadParameter."""
    found = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise typer.BadParameter(f"{text!r} must have the form KEY=VALUE.")
        found[key] = value
    return found
