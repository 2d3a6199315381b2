"""Parts of the tests that take long, for runs that have no time for all: `--part 0/4`.

Quick tests and those of the whole product are in each part. Of the other files each is in one; they
alternate by path, so that neighbours, which take about as long, are in different parts.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SPLIT = ("cluster", "faults", "integration")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="0/1", help="K/N: run the K-th of N parts, from 0.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out files of other parts."""
    number, _, count = str(config.getoption("--part")).partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise pytest.UsageError("--part is K/N, with K from 0 and below N")
    paths = {item.path for item in items if _is_split(item.path)}
    left_out = paths - set(part_of(sorted(paths), int(number), int(count)))
    others = [item for item in items if item.path in left_out]
    items[:] = [item for item in items if item.path not in left_out]
    config.hook.pytest_deselected(items=others)


def part_of(paths: Sequence[Path], number: int, count: int) -> Sequence[Path]:
    """Every `count`-th path, from that of a number on."""
    return paths[number::count]


def _is_split(path: Path) -> bool:
    return path.is_relative_to(HERE) and path.relative_to(HERE).parts[0] in SPLIT
