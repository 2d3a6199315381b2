"""Kubernetes quantities (`250m`, `64Gi`, `1e3`) as whole numbers."""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

_QUANTITY = re.compile(
    r"([+-]?\d+\.?\d*|[+-]?\.\d+)(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)"
)
_DECIMAL = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{letter: Fraction(10 ** (3 * power)) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=4096)
def quantity(text: str) -> Fraction:
    """Returns the exact value of a quantity; raises ValueError for what Kubernetes would refuse."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a quantity")
    digits, exponent, suffix = match.groups()
    if exponent:
        return Fraction(digits) * Fraction(10) ** int(exponent)
    return Fraction(digits) * _DECIMAL[suffix or ""]


def units(value: str | int | None) -> int:
    """Returns a quantity in whole units, rounded up; what is absent or no quantity is 0."""
    return _scaled(value, 1)


def millis(value: str | int | None) -> int:
    """Returns a quantity in thousandths, rounded up; what is absent or no quantity is 0."""
    return _scaled(value, 1000)


def amount(resource: str, value: str | int | None) -> int:
    """Returns an amount as the contract counts it: `cpu` in thousandths, the rest in units."""
    return millis(value) if resource == "cpu" else units(value)


def text_of(resource: str, count: int) -> str:
    """The quantity of an amount, in the shortest form that is exact."""
    if resource != "cpu":
        return str(count)
    whole, rest = divmod(count, 1000)
    return f"{count}m" if rest else str(whole)


def _scaled(value: str | int | None, by: int) -> int:
    if value is None:
        return 0
    try:
        return ceil(quantity(str(value)) * by)
    except ValueError:
        return 0
