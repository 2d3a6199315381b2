"""References in the contributors' pages exist: files, symbols, make targets, links."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / name
    for name in (
        "CONTRIBUTING.md",
        "CODE_OF_CONDUCT.md",
        "SECURITY.md",
        ".github/PULL_REQUEST_TEMPLATE.md",
        "docs/glossary.md",
        "docs/how-to/release.md",
    )
]
FOLDERS = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir())
# Made by what the pages describe.
MADE = (".venv/", "dist/")


def files_of(text: str) -> set[str]:
    """Paths in code, in blocks too, from the top of the tree on."""
    code = re.findall(r"```\w*\n(.*?)```|`([^`\n]+)`", text, re.DOTALL)
    words = re.findall(r"[\w.*/-]+", " ".join(block + span for block, span in code))
    return {word for word in words if word.startswith(FOLDERS) and not word.startswith(MADE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_what_is_there(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert not [link for link in links if not (page.parent / link).exists()]
    assert not [name for name in files_of(text) if not list(ROOT.glob(name.rstrip("/")))]
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", text, re.MULTILINE)) <= targets


def test_the_guide_is_short_and_names_much() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(text.splitlines()) < 200
    assert len(files_of(text)) > 50


def entries() -> list[tuple[str, str]]:
    rows = re.findall(r"^\| (.+?) \|.*\| (.+?) \|$", (ROOT / "docs/glossary.md").read_text(), re.M)
    return [(term, where) for term, where in rows if term != "term"]


@pytest.mark.parametrize(("term", "where"), entries())
def test_a_term_is_defined_where_the_glossary_says(term: str, where: str) -> None:
    path, symbol = re.findall(r"`([^`]+)`", where)
    assert re.search(rf"\b{symbol}\b", (ROOT / path).read_text())


def test_every_owner_has_something() -> None:
    lines = (ROOT / ".github/CODEOWNERS").read_text().splitlines()
    patterns = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert len(patterns) > 10
    assert not [one for one in patterns[1:] if not (ROOT / one.strip("/")).exists()]
