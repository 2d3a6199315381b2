"""Pauses double, spread, and begin again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.backoff import Backoff, doubled


def test_pauses_double_up_to_the_longest_within_half_of_their_bound() -> None:
    backoff = Backoff(shortest=1.0, longest=5.0)
    for bound in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert bound / 2 <= backoff.next() <= bound
    backoff.reset()
    assert backoff.next() <= 1.0


@pytest.mark.parametrize(("failures", "pause"), [(0, 100), (1, 200), (3, 800), (9, 30_000)])
def test_a_pause_after_failures_is_exact(failures: int, pause: int) -> None:
    assert doubled(100, failures, longest=30_000) == pause


@given(st.integers(0, 2**63))
def test_no_number_of_failures_is_too_large(failures: int) -> None:
    assert doubled(0.1, failures, longest=60.0) <= 60.0
