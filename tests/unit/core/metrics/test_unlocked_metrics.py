"""Metrics without locks say what the library's would."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY, CollectorRegistry, Histogram

from windlass.metrics.unlocked import UnlockedCounter, UnlockedHistogram

BUCKETS = (0.1, 1, 2.5)
Samples = dict[tuple[str, str], float]


@pytest.fixture(scope="module")
def metrics() -> Iterator[tuple[UnlockedCounter, UnlockedHistogram]]:
    made = UnlockedCounter("t_total", "T."), UnlockedHistogram("t_seconds", "T.", buckets=BUCKETS)
    yield made
    for one in made:
        REGISTRY.unregister(one)


def samples(metric: UnlockedCounter | UnlockedHistogram | Histogram) -> Samples:
    return {
        (one.name, one.labels.get("le", "")): one.value
        for family in metric.collect()
        for one in family.samples
        if not one.name.endswith("_created")
    }


@given(st.lists(st.floats(0, 5) | st.sampled_from(BUCKETS), max_size=20))
def test_a_histogram_counts_as_the_librarys(
    metrics: tuple[UnlockedCounter, UnlockedHistogram], amounts: list[float]
) -> None:
    ours = metrics[1]
    theirs = Histogram("t_seconds", "T.", buckets=BUCKETS, registry=CollectorRegistry())
    before = samples(ours)
    for amount in amounts:
        ours.observe(amount)
        theirs.observe(amount)
    grown = {key: value - before[key] for key, value in samples(ours).items()}
    assert grown == pytest.approx(samples(theirs))


def test_a_counter_counts(metrics: tuple[UnlockedCounter, UnlockedHistogram]) -> None:
    metrics[0].inc()
    metrics[0].inc(6)
    assert samples(metrics[0]) == {("t_total", ""): 7}
