"""Kubernetes quantities as whole numbers, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kubernetes.quantities import amount, millis, quantity, text_of, units


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("8", 8),
        ("1k", 1000),
        ("64Gi", 64 << 30),
        ("1.5Gi", 3 << 29),
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("1E", 10**18),
        ("1E3", 1000),
        ("100m", 1),
        (".5", 1),
        ("0", 0),
        (3, 3),
        (None, 0),
        ("many", 0),
    ],
)
def test_units_are_whole_and_rounded_up(text: str | int | None, whole: int) -> None:
    assert units(text) == whole


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [("250m", 250), ("2", 2000), ("0.1", 100), ("1u", 1), ("2k", 2 * 10**6)],
)
def test_cpus_are_counted_in_thousandths(text: str, thousandths: int) -> None:
    assert millis(text) == thousandths
    assert amount("cpu", text) == thousandths


@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 1 << 60))
def test_an_amount_survives_its_text(resource: str, count: int) -> None:
    assert amount(resource, text_of(resource, count)) == count


@given(st.text(max_size=12))
def test_other_text_is_refused_or_a_number(text: str) -> None:
    try:
        assert quantity(text) is not None
    except ValueError:
        assert units(text) == 0
