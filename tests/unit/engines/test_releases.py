"""Environments of other engines: what is found in them, and what is logged where nothing is."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from windlass_agent.engines.commands.releases import has_release

HERE = Path(sys.executable)
FOUND = tuple(int(part) for part in version("pytest").split(".")[:2])


@pytest.mark.parametrize(
    ("python", "package", "oldest", "reason"),
    [
        (HERE, "pytest", FOUND, ""),
        (HERE, "pytest", (FOUND[0] + 1, 0), "is too old"),
        (HERE, "no-such-engine", (0, 1), "no-such-engine"),
        (Path("/no/python"), "pytest", (0, 1), "No such file"),
    ],
)
def test_a_release_is_found_or_the_log_says_why_not(
    python: Path, package: str, oldest: tuple[int, ...], reason: str
) -> None:
    with capture_logs() as logs:
        assert has_release(python, package, oldest) is (not reason)
    (entry,) = logs
    event = "engine_unavailable" if reason else "engine_found"
    assert (entry["event"], entry["engine"]) == (event, package)
    assert reason in entry.get("reason", "")
