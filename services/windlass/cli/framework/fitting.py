"""Rows cut to the width of a terminal."""

import re
from collections.abc import Sequence

GAP = 2
# A column that is cut keeps at least this many characters.
LEAST = 8
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_SPANS = ((0, 16), (5, 16), (0, 10), (5, 10))
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"

Rows = list[list[str]]


def fitted(rows: Sequence[Sequence[str]], width: int) -> tuple[Rows, list[str]]:
    """Rows that fit a width, and the headers of the last columns, left out for it.

    The first column stays whole, since ids are there to be copied, unless it alone is too
    wide. Of the others the widest are cut first.
    """
    natural = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths = _widths(natural, width)
    cut = [[shortened(cell, most) for cell, most in zip(row, widths, strict=False)] for row in rows]
    return cut, list(rows[0][len(widths) :])


def _widths(natural: Sequence[int], width: int) -> list[int]:
    widths = [min(natural[0], width)]
    room = width - widths[0]
    for wanted in natural[1:]:
        room -= GAP + min(wanted, LEAST)
        if room < 0:
            break
        widths.append(min(wanted, LEAST))
        left = room
    while len(widths) > 1 and left and (short := _shortest(widths, natural)):
        widths[short] += 1
        left -= 1
    return widths


def _shortest(widths: Sequence[int], natural: Sequence[int]) -> int:
    """The narrowest column that is still cut; 0 for none."""
    cut = [index for index in range(1, len(widths)) if widths[index] < natural[index]]
    return min(cut, key=lambda index: widths[index], default=0)


def shortened(text: str, width: int) -> str:
    """A text in at most `width` characters: a name without its middle, prose without its end.

    Of a moment the parts stay that tell most, whole.
    """
    if len(text) <= width:
        return text
    if _MOMENT.fullmatch(text):
        # The minute, with or without the year; the day, with or without the year.
        first, last = next((span for span in _SPANS if span[1] - span[0] <= width), (0, width))
        return text[first:last]
    kept = width - len(ELLIPSIS)
    tail = 0 if " " in text else kept // 2
    return text[: kept - tail] + ELLIPSIS + text[len(text) - tail :]
