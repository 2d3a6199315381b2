"""Lines drawn in a terminal's cells: pure text, two dots wide and four high a cell."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Points = Sequence[tuple[float, float]]
# The dots of a braille cell, by row and column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BRAILLE = 0x2800
_LABEL = 10


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Characters that belong together; `series` is None for axes and empty cells."""

    text: str
    series: str | None = None


Line = list[TextSpan]


def plot(series: Mapping[str, Points], *, width: int, height: int, ascii_only: bool) -> list[Line]:
    """Several series over one pair of axes, as `height` lines and one for the x axis.

    A series is points of ascending x; those that are not finite are left out. Where lines
    cross, the later series is in front.
    """
    finite = {
        name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in series.items()
    }
    every = [point for points in finite.values() for point in points]
    if not every:
        return []
    columns = max(2, width - _LABEL - 2)
    (left, right), (low, high) = _range(x for x, _ in every), _range(y for _, y in every)
    cells: dict[tuple[int, int], tuple[int, str]] = {}
    wide, tall = 2 * columns - 1, 4 * height - 1
    for name, points in finite.items():
        scaled = [
            (round((x - left) / (right - left) * wide), round((high - y) / (high - low) * tall))
            for x, y in points
        ]
        for x, y in _joined(scaled):
            place = (y // 4, x // 2)
            bits, _ = cells.get(place, (0, name))
            cells[place] = (bits | _DOTS[y % 4][x % 2], name)
    labels = {0: high, height - 1: low}
    lines = [
        [_label(labels.get(row)), *_row(cells, row, columns, ascii_only)] for row in range(height)
    ]
    first, last = f"{left:g}", f"{right:g}"
    axis = f"{first}{last.rjust(columns - len(first))}"
    return [*lines, [TextSpan(" " * (_LABEL + 2) + axis)]]


def _range(values: Iterator[float]) -> tuple[float, float]:
    found = list(values)
    low, high = min(found), max(found)
    half = max(0.5, abs(low) / 2)
    return (low, high) if low < high else (low - half, high + half)


def _label(value: float | None) -> TextSpan:
    return TextSpan(
        f"{'' if value is None else f'{value:.4g}':>{_LABEL}} \N{BOX DRAWINGS LIGHT VERTICAL}"
    )


def _joined(points: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The dots of a line through all points."""
    yield from points[:1]
    for (x, y), (to_x, to_y) in pairwise(points):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        for step in range(1, steps + 1):
            yield x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)


def _row(
    cells: Mapping[tuple[int, int], tuple[int, str]], row: int, columns: int, ascii_only: bool
) -> Iterator[TextSpan]:
    for column in range(columns):
        bits, name = cells.get((row, column), (0, None))
        if not bits:
            yield TextSpan(" ")
        else:
            yield TextSpan("*" if ascii_only else chr(_BRAILLE + bits), name)
