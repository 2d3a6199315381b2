"""Every page leads to what is there: links, headings, files of the tree; and can be found."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
# The changelog names what was there at the time.
TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
PATH = re.compile(r"`((?:agent|deploy|docs|proto|services|tests|tools)/[\w.*/-]+)`")


@cache
def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", one).lower() for one in found]
    return {re.sub(r"[^\w -]", "", one).replace(" ", "-") for one in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for name, heading in LINK.findall(page.read_text()):
        target = page.parent / name if name else page
        if not target.exists() or (heading and heading not in headings(target)):
            wrong.append(f"{name}#{heading}")
    assert not wrong


@pytest.mark.parametrize("page", TODAY, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_the_tree_exist(page: Path) -> None:
    missing = [name for name in PATH.findall(page.read_text()) if not list(ROOT.glob(name))]
    assert not missing


@pytest.mark.parametrize("folder", ["how-to", "reference"])
def test_every_page_is_in_the_index(folder: str) -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / name).resolve() for name, _ in LINK.findall(index.read_text())}
    assert not set((ROOT / "docs" / folder).glob("*.md")) - linked
