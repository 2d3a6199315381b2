"""The page on models that are not ready prints the words that the code says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "why-is-my-model-not-ready.md"
SOURCES = "\n".join(
    re.sub(r'"\s*\n\s*f?"', "", path.read_text())
    for folder in (
        "services/windlass/inference",
        "services/windlass/modelfiles",
        "agent/windlass_agent",
    )
    for path in (ROOT / folder).rglob("*.py")
)
SAID = re.findall(r"^\| `([^|`]+)`", PAGE.read_text(), re.MULTILINE)


def test_the_page_has_them() -> None:
    assert len(SAID) > 15


@pytest.mark.parametrize("said", SAID)
def test_what_it_prints_is_said(said: str) -> None:
    # Numbers and names are filled in.
    parts = re.split(r"…|\d+\.\d+ GiB|\d+|'[a-z]+'|project", said)
    words = [part.strip(" .:") for part in parts if len(part.strip(" .:'s")) > 6]
    assert words
    assert all(part in SOURCES for part in words), words
