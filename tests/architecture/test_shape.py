"""The shape that the code promises: small files, telling names, one room for each thing."""

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tests.campaigns import CAMPAIGNS

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("services", "agent", "plugin", "tests", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if "api" not in path.relative_to(ROOT).parts[:3] and "versions" not in path.parts
]
PRODUCT = ("services", "agent", "plugin")
OURS = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in PRODUCT]
LONGEST = 500
WIDEST = 15
IMPORTS = re.compile(r"(?:may import|\bimports) \S|\.importlinter", re.IGNORECASE)
VAGUE = re.compile(r"^(utils?|helpers?|common|misc|base_\w+)\.py$")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_too_long_or_vaguely_named(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST
    assert not VAGUE.match(path.name)


@pytest.mark.parametrize("file", CAMPAIGNS)
def test_a_file_of_campaigns_is_there(file: str) -> None:
    assert (ROOT / "tests" / file).is_file()


def test_most_files_are_short() -> None:
    lengths = sorted(len(path.read_text().splitlines()) for path in OURS)
    assert lengths[len(lengths) // 2] <= 160
    assert lengths[int(len(lengths) * 0.95)] <= 350


def test_no_folder_is_too_wide() -> None:
    """Modules of one folder, `__init__.py` aside; more belong into folders of their own."""
    modules = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    wide = {str(folder.relative_to(ROOT)) for folder, n in modules.items() if n > WIDEST}
    assert wide == set()


def test_each_package_says_what_it_may_import() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in OURS
        if path.name == "__init__.py"
        and not IMPORTS.search(ast.get_docstring(ast.parse(path.read_text())) or "")
    ]
    assert silent == []


def test_no_two_classes_have_one_name() -> None:
    """Searching for a class finds one definition, private and nested ones too."""
    places: dict[str, list[str]] = {}
    for path in OURS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_only_configuration_reads_the_environment() -> None:
    """`os.environ` elsewhere would be a setting that nobody can find."""
    allowed = {
        "services/windlass/cli",
        "services/windlass/client",
        "agent/windlass_agent/runner",
        "agent/windlass_agent/executors",
        "agent/windlass_agent/machine/machine",
        "agent/windlass_agent/kube/access",
        "services/windlass/demo",
        "services/windlass/embedded_postgres",
        "services/windlass/core/config",
        "plugin/windlass_vllm/settings",
        # What it passes on to a child is no setting of ours.
        "services/windlass/confinement/environment",
        # torchrun tells its processes their places so.
        "agent/windlass_agent/tuning/full/ranks",
        # In vLLM's process, which has no settings of ours.
        "agent/windlass_agent/engines/vllm/hook",
        # It sets what gRPC reads when it is loaded, and reads nothing.
        "services/windlass/__init__",
        # For tests alone, and no setting.
        "services/windlass/core/killpoints",
    }
    found = []
    for path in OURS:
        name = str(path.relative_to(ROOT))
        if any(name.startswith(prefix) for prefix in allowed):
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv"):
                found.append(f"{name}:{node.lineno}")
    assert not found


def test_nothing_names_the_machine_it_was_written_on() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    pattern = re.compile(r"/" + r"work/(main|shared)|/root" + r"/\.pyenv")
    found = [
        name
        for name in tracked
        if (ROOT / name).is_file() and pattern.search((ROOT / name).read_text(errors="ignore"))
    ]
    assert not found


IGNORED = re.compile(r"#\s*(type:\s*ignore|mypy:)")
REASONED = re.compile(r"#\stype:\signore\[[a-z, -]+\]  # \w")


def test_what_the_type_checker_ignores_has_a_code_and_a_reason() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if IGNORED.search(line) and not REASONED.search(line)
    ]
    assert found == []


def raised_anew(source: str) -> list[int]:
    """The lines of `except*` blocks that raise, other than what they caught."""
    handlers = [
        handler
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.TryStar)
        for handler in node.handlers
    ]
    return [
        node.lineno
        for handler in handlers
        for node in ast.walk(handler)
        if isinstance(node, ast.Raise) and node.exc is not None
    ]


def test_no_handler_of_exception_groups_raises() -> None:
    """Python before 3.11.4, which Debian 12 has, wraps in a group what is raised there."""
    assert raised_anew("try:\n    a()\nexcept* E as es:\n    raise es.exceptions[0]\n") == [4]
    assert not raised_anew("try:\n    a()\nexcept* E:\n    raise\n")
    found = {path: lines for path in OURS if (lines := raised_anew(path.read_text()))}
    assert not found, "raise after the `try` instead"
