"""Records of requests: whatever is asked or reported, what they count can be stored and added."""

import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from windlass.core.rpc.auth import Principal
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.head import read_head
from windlass.gateway.inference.meter import (
    CHAT,
    CLIENT_LEFT,
    MOST_COUNTED,
    TOKENS_PER_SECOND,
    UsageBounds,
    UsageMeter,
)
from windlass.gateway.usage.spool import UsageLine, UsageSpool, read_segment
from windlass.gateway.usage.token_usage import TokenUsage
from windlass.inference_api.requests import MAX_CHOICES


async def _unused(*_: Any) -> Any:
    """Stands for a client to which nothing is said here."""


class Metered:
    """A meter of one request and its spool."""

    def __init__(self, folder: Path, **fields: Any):
        body = json.dumps({"model": "m", **fields}).encode()
        self.bounds = UsageBounds.of(CHAT, read_head(body), len(body))
        self._spool = UsageSpool(folder)
        scope = {"method": "POST", "path": "/v1/chat/completions", "headers": []}
        exchange = HttpExchange(scope, _unused, _unused)
        exchange.principal = Principal("org", "proj")
        self.meter = UsageMeter(self._spool, exchange, "m", self.bounds)

    def lines(self) -> list[UsageLine]:
        self._spool.seal()
        return [one for path in self._spool.sealed() for one in read_segment(path)]


@pytest.mark.parametrize("number", [10**18, 10**30, 1e300])
def test_an_estimate_is_of_as_many_answers_as_an_engine_gives(tmp_path: Path, number: Any) -> None:
    found = Metered(tmp_path, n=number).bounds.estimate(4.0, 0)
    assert found.completion_tokens == 4 * TOKENS_PER_SECOND * MAX_CHOICES


def test_no_count_of_a_record_is_too_large_to_be_stored(tmp_path: Path) -> None:
    metered = Metered(tmp_path, max_tokens=10**18, ignore_eos=True)
    metered.meter.open()
    metered.meter.asked()
    metered.meter.report(TokenUsage(10**19, 10**19, 10**19, 10**19))
    metered.meter.write(200)
    (line,) = metered.lines()
    assert line.output_tokens == line.output_reasoning_tokens == MOST_COUNTED
    assert 0 < line.input_tokens == line.input_cached_tokens <= MOST_COUNTED


@pytest.mark.parametrize(
    ("status", "worked", "costs"),
    [
        (200, False, True),
        (CLIENT_LEFT, False, True),
        (502, True, True),
        (400, False, False),
        (404, False, False),
        (429, False, False),
        (503, False, False),
    ],
)
def test_what_an_engine_refused_costs_a_client_nothing_that_has_left(
    tmp_path: Path, status: int, worked: bool, costs: bool
) -> None:
    metered = Metered(tmp_path, messages=["x" * 100])
    metered.meter.open()
    metered.meter.asked()
    metered.meter.client_left = True
    metered.meter.write(status, worked=worked)
    (line,) = metered.lines()
    assert (line.status, line.estimated, line.input_tokens > 0) == (CLIENT_LEFT, costs, costs)


def test_a_client_pays_for_an_engine_that_has_the_request_and_for_none_that_left_it(
    tmp_path: Path,
) -> None:
    for number, engines in enumerate((0, 1)):
        metered = Metered(tmp_path / str(number), messages=["x" * 100])
        metered.meter.open()
        for _ in range(engines + 1):
            metered.meter.asked()
        metered.meter.refused()
        assert metered.meter.is_asked is (engines > 0)
        metered.meter.write(CLIENT_LEFT)
        assert [one.estimated for one in metered.lines()] == [engines > 0]


def test_a_request_is_measured_by_its_model_and_project(tmp_path: Path) -> None:
    def answered() -> float:
        labels = {"model": "m", "project": "proj", "outcome": "answered"}
        return REGISTRY.get_sample_value("windlass_model_requests_total", labels) or 0

    before, metered = answered(), Metered(tmp_path)
    metered.meter.write(200)
    assert answered() == before, "no engine got it"
    metered.meter.open()
    metered.meter.asked()
    metered.meter.write(200)
    metered.meter.write(200)
    assert answered() == before + 1
