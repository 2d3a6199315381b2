"""Sources of python graders: what Python is, and what takes a sample and an item."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.graders.sources import InvalidSource, check_source


@pytest.mark.parametrize(
    "arguments",
    ["sample, item", "sample, item, /", "a, b=None", "*both", "a, *rest", "a, b, c=1, *, d=2"],
)
def test_a_function_of_two_arguments_grades(arguments: str) -> None:
    check_source(f"import math\n\ndef grade({arguments}) -> float:\n    return 1.0\n")


@pytest.mark.parametrize("arguments", ["", "sample", "a, b, c", "a, b, *, c", "*, sample, item"])
def test_one_of_others_does_not(arguments: str) -> None:
    with pytest.raises(InvalidSource, match="other arguments"):
        check_source(f"def grade({arguments}): return 1")


def test_the_last_definition_counts() -> None:
    check_source("def grade(a): return 1\ndef grade(a, b): return 1")
    with pytest.raises(InvalidSource):
        check_source("def grade(a, b): return 1\ndef grade(a): return 1")


@given(st.text(max_size=200), st.sampled_from(["", "def grade(sample, item): return 1\n"]))
def test_whatever_is_no_python_is_refused_and_nothing_else_happens(text: str, before: str) -> None:
    source = before + text
    try:
        check_source(source)
    except InvalidSource:
        return
    assert "def grade" in source
    ast.parse(source)
