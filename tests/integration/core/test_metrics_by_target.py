"""Each target as a process of its own shows the metrics of what it runs, and no others."""

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.processes.shapes import divide
from tests.support.processes.windlass import START_SECONDS, Windlass, free_port
from tests.support.waiting import wait_until

from windlass.targets import MODULES

EVERY = {"process", "rpc", "database", "outbox"}
OWN = {
    "gateway": {"gateway"},
    "rbac": {"rbac"},
    "clusters": {"clusters"},
    "jobs": {"jobs"},
    "inference": {"inference"},
    "sessions": {"tunnel"},
    "agent": {"agent"},
}


@pytest.fixture
def windlass(database_url: str, tmp_path: Path) -> Iterator[Windlass]:
    # A fork would have the metrics of every target.
    made = Windlass(tmp_path / "data", free_port(), cold=True)
    divide(made, database_url.replace("+psycopg", ""), {})
    yield made
    made.stop()


def families(file: str) -> set[str]:
    """Returns the names that a file of the declarations has."""
    found: set[str] = set()
    for one in vars(import_module(f"windlass.metrics.{file}")).values():
        if callable(describe := getattr(one, "describe", None)) and not isinstance(one, type):
            found |= {family.name for family in describe()}
    return found


def scraped(windlass: Windlass, target: str) -> set[str]:
    """Starts the target alone, and returns the names that its `/metrics` shows."""
    windlass.start(target)
    pages: list[str] = []

    def answers() -> bool:
        assert windlass.processes[target].poll() is None, windlass.log(target)[-3000:]
        with suppress(FileNotFoundError, httpx.TransportError):
            pages.append(httpx.get(f"{windlass.operations(target)}/metrics", timeout=30).text)
        return bool(pages)

    wait_until(answers, "metrics", START_SECONDS, every=0.1)
    read = text_string_to_metric_families(pages[0])
    return {one.name for one in read if one.name.startswith("windlass_")}


# Of those without metrics of their own, a few are enough for every change.
LATER = {"files", "usage", "federation", "tuning"}
assert not LATER & OWN.keys()


@pytest.mark.parametrize(
    "target",
    [pytest.param(one, marks=[pytest.mark.long] * (one in LATER)) for one in MODULES],
)
def test_a_target_shows_what_it_runs(windlass: Windlass, target: str) -> None:
    files = EVERY | OWN.get(target, set())
    assert scraped(windlass, target) == set().union(*map(families, files))
