"""Parts of the tests: each file that is split is in one of them."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.parts import part_of


@given(st.integers(0, 40), st.integers(1, 5))
def test_each_path_is_in_one_part(number: int, count: int) -> None:
    paths = [Path(f"test_{one:02}.py") for one in range(number)]
    parts = [part_of(paths, one, count) for one in range(count)]
    assert sorted(path for part in parts for path in part) == paths
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
