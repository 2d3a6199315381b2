"""The formula of a multi grader: what it may hold, what it yields, and how it fails."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.graders import Fault, Ungradable
from windlass.graders.formula import InvalidFormula, compile_formula

SCORES = {"a": 0.5, "b": 0.25, "c": 2.0}
NAMES = frozenset(SCORES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 0.5),
        ("0.5 * a + b", 0.5),
        ("(a + b) / c", 0.375),
        ("c ^ 3 - 1", 7),
        ("2 * c ^ 2", 8),
        ("-a + +b", -0.25),
        ("min(a, b, c) + max(a, c)", 2.25),
        ("abs(-a) + floor(1.7) + ceil(0.2)", 2.5),
        ("sqrt(b) + log(exp(c))", 2.5),
        (" a\n + b ", 0.75),
    ],
)
def test_a_formula_is_worth_what_it_says(text: str, expected: float) -> None:
    assert compile_formula(text, NAMES).value(SCORES) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be a formula"),
        ("a +", "must be a formula"),
        ("d + a", "uses 'd'"),
        ("__import__('os')", "may contain only"),
        ("a.real", "may contain only"),
        ("a if b else c", "may contain only"),
        ("a < b", "may contain only"),
        ("[a][0]", "may contain only"),
        ("True", "may contain only"),
        ("1j", "may contain only"),
        ("min(*a)", "calls min|nothing else"),
        ("abs(a, b)", "calls abs with 2"),
        ("max(a)", "calls max with 1"),
        ("max(a, key=b)", "may contain only"),
        ("9" * 20, "greater than 1e15"),
        ("1e999", "greater than 1e15"),
        ("a +" * 400 + "a", "longer than"),
        ("-" * 60 + "a", "nested too deeply"),
        ("(" * 300 + "a" + ")" * 300, "must be a formula"),
    ],
)
def test_anything_but_arithmetic_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidFormula, match=why):
        compile_formula(text, NAMES)


@pytest.mark.parametrize(
    "text", ["a / (b - b)", "log(0 * a)", "sqrt(-c)", "exp(999)", "(-a) ^ 0.5", "9 ^ 9 ^ 9 ^ 9"]
)
def test_a_result_that_is_no_number_is_a_fault(text: str) -> None:
    with pytest.raises(Ungradable) as raised:
        compile_formula(text, NAMES).value(SCORES)
    assert raised.value.fault is Fault.FORMULA


@given(st.text(max_size=80))
def test_no_text_does_more_than_be_refused_or_give_a_number(text: str) -> None:
    try:
        value = compile_formula(text, NAMES).value(SCORES)
    except (InvalidFormula, Ungradable):
        return
    assert math.isfinite(value)
