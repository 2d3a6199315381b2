"""However often somebody scrapes, what costs a query is read at times of its own."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from windlass.core.operations import Exposition, exposition


def read(page: bytes, family: str) -> dict[str, float]:
    families = {one.name: one for one in text_string_to_metric_families(page.decode())}
    return {one.labels["sample"]: one.value for one in families[family].samples}


async def test_samples_are_taken_when_somebody_asks_and_not_at_every_scrape() -> None:
    taken = []
    now = 100.0

    async def take() -> None:
        taken.append(now)

    page = Exposition(clock=lambda: now)
    page.sample("fresh", take)
    assert not taken
    for _ in range(3):
        await asyncio.gather(*(page.render() for _ in range(5)))
    assert len(taken) == 1
    now += exposition.SAMPLE_SECONDS
    await page.render()
    assert len(taken) == 2


async def test_a_sample_that_fails_or_hangs_costs_the_page_nothing_but_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exposition, "TAKE_SECONDS", 0.01)

    async def fail() -> None:
        raise OSError("away")

    async def hang() -> None:
        await asyncio.Event().wait()

    async def good() -> None:
        pass

    page = Exposition()
    page.sample("hangs", hang)
    page.sample("fails", fail)
    page.sample("good", good)
    times = read(await page.render(), "windlass_sample_timestamp_seconds")
    assert "good" in times
    assert not times.keys() & {"hangs", "fails"}
