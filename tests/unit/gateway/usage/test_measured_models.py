"""Requests are measured by model and project, in as many series as a page should have."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from windlass.gateway.usage import measured_models
from windlass.gateway.usage.measured_models import IDLE_SECONDS, OTHERS, MeasuredModels
from windlass.gateway.usage.token_usage import TokenUsage
from windlass.metrics import gateway as metrics

FAMILIES = (metrics.MODEL_REQUESTS, metrics.MODEL_TOKENS, metrics.MODEL_FIRST_TOKEN_SECONDS)


def requests(model: str, project: str, outcome: str = "answered") -> float | None:
    labels = {"model": model, "project": project, "outcome": outcome}
    return REGISTRY.get_sample_value("windlass_model_requests_total", labels)


def shown() -> set[tuple[str, str]]:
    """The test's pairs that are on the page, each with all of its series or none."""
    pairs = [
        {
            (one.labels["model"], project)
            for one in family.samples
            if (project := one.labels["project"]).startswith("p-") or project == OTHERS
        }
        for metric in FAMILIES
        for family in metric.collect()
    ]
    assert all(one == pairs[0] for one in pairs)
    return pairs[0]


@contextmanager
def measured(clock: Callable[[], float] = time.monotonic) -> Iterator[MeasuredModels]:
    """Series of a test's own, which nobody else has asked for."""
    models = MeasuredModels(clock)
    try:
        yield models
    finally:
        for one in models._pairs.values():
            one.remove()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def models() -> Iterator[MeasuredModels]:
    with measured() as made:
        yield made


def test_what_is_counted(models: MeasuredModels) -> None:
    usage = TokenUsage(100, 20, 60)
    models.of("ft:toy:a", "p-a").count(200, usage, 0.2)
    models.of("ft:toy:a", "p-a").count(200, usage, None)
    for status, outcome in ((404, "refused"), (502, "failed"), (499, "left")):
        models.of("ft:toy:a", "p-a").count(status, TokenUsage(), None)
        assert requests("ft:toy:a", "p-a", outcome) == 1
    assert requests("ft:toy:a", "p-a") == 2
    labels = {"model": "ft:toy:a", "project": "p-a"}
    for what, number in (("prompt", 200), ("cached", 120), ("generated", 40)):
        name = "windlass_model_tokens_total"
        assert REGISTRY.get_sample_value(name, labels | {"what": what}) == number
    assert REGISTRY.get_sample_value("windlass_model_first_token_seconds_count", labels) == 1


def test_no_project_fills_the_page_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_models, "MOST", 6)
    monkeypatch.setattr(measured_models, "MOST_OF_PROJECT", 3)
    clock = Clock()
    with measured(clock) as models:
        for number in range(10):
            models.of(f"m-{number}", "p-greedy").count(200, TokenUsage(), None)
        assert requests(OTHERS, "p-greedy") == 7
        models.of("m", "p-modest").count(200, TokenUsage(), None)
        assert requests("m", "p-modest") == 1
        # The page is full: of all further projects it shows the sum.
        models.of("n", "p-modest")
        for project in ("p-late", "p-later"):
            models.of("m", project).count(200, TokenUsage(), None)
        assert requests(OTHERS, OTHERS) == 2
        # What nobody asks for any more makes room.
        clock.now = IDLE_SECONDS
        models.of("m", "p-late").count(200, TokenUsage(), None)
        models.of("m-9", "p-greedy").count(200, TokenUsage(), None)
        assert requests("m", "p-late") == requests("m-9", "p-greedy") == 1
        assert len(shown()) <= 7


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 400))))
def test_series_are_bounded_whatever_is_asked(asked: list[tuple[int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(measured_models, "MOST", 8)
        patch.setattr(measured_models, "MOST_OF_PROJECT", 3)
        clock = Clock()
        models = stack.enter_context(measured(clock))
        for model, project, seconds in asked:
            clock.now += seconds
            models.of(f"m-{model}", f"p-{project}").count(200, TokenUsage(), 0.1)
            pairs = shown()
            assert len(pairs) <= 8 + 1
            assert max(Counter(one[1] for one in pairs).values()) <= 3 + 1
