"""The example configurations are ones that would start."""

from pathlib import Path

import pytest

from windlass.core import config
from windlass.core.config.check import check
from windlass.targets import expand, missing_peers

EXAMPLES = sorted((Path(__file__).parents[3] / "deploy" / "config").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_can_work(path: Path) -> None:
    settings = config.load(path)
    assert not [finding for finding in check(settings) if finding.level == "error"]
    assert not missing_peers(expand(settings.targets), settings.peers)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
