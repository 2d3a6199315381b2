"""The architecture pages, the features and the README name what exists, and stay readable."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/architecture").glob("*.md"))
# A page leaves these out of a path.
PACKAGES = ("services/windlass", "agent/windlass_agent", "plugin/windlass_vllm")
PARENTS = (ROOT, *(ROOT / name for name in PACKAGES))
FOLDERS = ("services/", "agent/", "plugin/", "proto/", "tests/", "docs/", "deploy/", "tools/")
NAMES = {path.name for parent in FOLDERS for path in (ROOT / parent).rglob("*.*")}
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)")
FILE = re.compile(r"(?<![\w/.*-])[\w.-]+(?:/[\w.-]+)*\.(?:py|proto|yaml|md|toml)\b(?!\.)")
# A file, and what of it is meant.
PART = re.compile(r"`([\w./-]+\.py)` \(`(\w+)`\)")
# These levels of tests prove what users are promised, so that each file stands beside a statement.
PROOFS = ("e2e", "faults", "cluster", "integration")
TEST = re.compile(r"`(tests/[^`\s]+)`")
# A step of a sequence diagram: an arrow between two participants.
STEP = re.compile(r"^\s*\w+\s*-{1,2}(?:>>?|x|\))\s*\w+\s*:.*", re.MULTILINE)
FOLDER = re.compile(r"(?:{})[\w./-]*".format("|".join(FOLDERS)))


def is_there(name: str) -> bool:
    """True where a page may call a file or a folder so; a bare name is that of any file."""
    if "/" not in name:
        return name in NAMES or (ROOT / name).exists()
    return any((parent / name).exists() for parent in PARENTS)


def named(page: Path) -> Iterator[str]:
    """Yields the files and folders that a page names."""
    text = page.read_text()
    for diagram in DIAGRAM.findall(text):
        yield from FILE.findall(diagram)
    for quoted in QUOTED.findall(DIAGRAM.sub("", text)):
        yield from FILE.findall(quoted)
        if FOLDER.fullmatch(quoted):
            yield quoted


def test_there_are_pages() -> None:
    assert PAGES
    assert list(named(ROOT / "docs/architecture/job.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_what_exists(page: Path) -> None:
    missing = {name for name in named(page) if not is_there(name)}
    missing |= {
        link
        for link in LINK.findall(page.read_text())
        if "://" not in link and not (page.parent / link).exists()
    }
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_part_of_a_file_is_in_it(page: Path) -> None:
    for name, part in PART.findall(page.read_text()):
        found = [parent / name for parent in PARENTS if (parent / name).exists()]
        assert any(re.search(rf"\b{part}\b", path.read_text()) for path in found), (name, part)


def steps(page: Path) -> list[str]:
    """The steps of a page's sequence diagrams."""
    diagrams = DIAGRAM.findall(page.read_text())
    return [
        step
        for diagram in diagrams
        if diagram.startswith("sequenceDiagram")
        for step in STEP.findall(diagram)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_step_of_a_sequence_names_its_file(page: Path) -> None:
    assert [step for step in steps(page) if not FILE.search(step)] == []


def test_the_steps_of_the_sequences_are_found() -> None:
    assert sum(len(steps(page)) for page in PAGES) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_diagrams_of_a_page_can_be_drawn(page: Path) -> None:
    """To Mermaid `;` ends a line of a diagram, and `#` begins a comment."""
    lines = "\n".join(DIAGRAM.findall(page.read_text())).splitlines()
    assert not [line for line in lines if ";" in line or "#" in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_lines_of_a_page_are_short(page: Path) -> None:
    """Tables and diagrams aside, whose rows and steps are a line each."""
    prose = FENCED.sub("", page.read_text()).splitlines()
    assert [line for line in prose if len(line) > 120 and not line.startswith("|")] == []


def test_every_page_is_linked() -> None:
    linked = set(LINK.findall((ROOT / "docs/architecture/README.md").read_text()))
    assert {page.name for page in PAGES} - {"README.md"} <= linked


def uses(path: Path, name: str) -> set[str]:
    """Names in the functions of that name in a file, and in the constructors of their classes."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found: list[ast.AST] = []
    for scope in ast.walk(ast.parse(path.read_text())):
        if isinstance(scope, ast.Module | ast.ClassDef):
            functions = {node.name: node for node in scope.body if isinstance(node, kinds)}
            found += [functions[one] for one in (name, "__init__") if {name, one} <= set(functions)]
    assert found, f"{path} has no function {name}"
    nodes = [node for body in found for node in ast.walk(body)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_the_creation_of_a_job_runs_through_nine_functions() -> None:
    """Each of the list is in its file, and one before it in the list uses it."""
    text = (ROOT / "docs/architecture/job.md").read_text()
    (paragraph,) = re.findall(r"\*\*Nine functions to the row\.\*\*.*?\n\n", text, re.DOTALL)
    line = PART.findall(paragraph)
    assert len(line) == 9
    used = {"__call__"}
    for name, part in line:
        assert part in used, f"nothing before it uses {part}"
        used |= uses(ROOT / "services/windlass" / name, part)


def proofs() -> set[str]:
    """The test files and folders that the page of features names; a name may be a glob."""
    return set(TEST.findall((ROOT / "docs/features.md").read_text()))


def test_the_tests_that_features_name_exist() -> None:
    assert len(proofs()) > 100
    assert not [name for name in proofs() if not list(ROOT.glob(name))]


@pytest.mark.parametrize("level", PROOFS)
def test_every_proof_is_named_by_a_feature(level: str) -> None:
    named_files = {found for name in proofs() for found in ROOT.glob(name)}
    files = (ROOT / "tests" / level).rglob("test_*.py")
    assert not [
        str(path.relative_to(ROOT))
        for path in files
        if path not in named_files and not named_files & set(path.parents)
    ]


def test_the_readme_is_two_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
