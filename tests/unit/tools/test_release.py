"""Output of `make release` for a source tree."""

import datetime
import subprocess
import tomllib
from pathlib import Path

import pytest
from tools import release

DAY = datetime.date(2026, 12, 1)
CHANGELOG = """# Changelog

Newest first.

## Unreleased

### Added
- A thing.

## 0.1.0 (2026-11-01)

### Added
- The first thing.
"""
PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "windlass"
version = "0.2.0"
requires-python = ">=3.11"
[tool.hatch.build.targets.wheel]
packages = ["windlass"]
"""


def git(root: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A clean checkout of a small project, one version after its first release."""
    files = {
        ".gitignore": "dist/\n",
        "CHANGELOG.md": CHANGELOG,
        "pyproject.toml": PROJECT,
        "plugin/pyproject.toml": PROJECT.replace("windlass", "beside"),
        "plugin/beside/__init__.py": "",
        "windlass/__init__.py": "",
        "deploy/helm/Chart.yaml": "name: agent\nversion: 0.2.0\nappVersion: 0.2.0\n",
        "deploy/docker/agent.Dockerfile": "# docker build -t ghcr.io/windlass/agent:0.2.0 .\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "tree: begin")
    return tmp_path


def replace(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new))
    git(root, "commit", "--quiet", "--all", "--message", "tree: change")


def test_the_unreleased_section_goes_under_the_version_and_its_day() -> None:
    before, after = CHANGELOG.split("## Unreleased\n")
    expected = f"{before}## Unreleased\n\n## 0.2.0 (2026-12-01)\n{after}"
    assert release.dated(CHANGELOG, "0.2.0", DAY) == expected


@pytest.mark.parametrize("without", ["### Added\n- A thing.\n", "## Unreleased\n"])
def test_a_changelog_with_nothing_unreleased_is_refused(without: str) -> None:
    with pytest.raises(release.NotReady, match="nothing under '## Unreleased'"):
        release.dated(CHANGELOG.replace(without, "", 1), "0.2.0", DAY)


def test_a_release_is_built_and_neither_committed_nor_tagged(
    tree: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    release.main(tree)
    built = sorted(path.name for path in (tree / "dist").iterdir() if path.name != ".gitignore")
    ends = ("-0.2.0-py3-none-any.whl", "-0.2.0.tar.gz")
    assert built == [name + end for name in ("beside", "windlass") for end in ends]
    assert "git tag --annotate v0.2.0" in capfd.readouterr().out
    assert git(tree, "tag") == ""
    assert git(tree, "status", "--porcelain") == " M CHANGELOG.md\n"


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("pyproject.toml", '"0.2.0"', '"0.1.0"', "0.1.0 is released already"),
        ("plugin/pyproject.toml", '"0.2.0"', '"0.1.0"', "plugin/pyproject.toml: 0.1.0"),
        ("deploy/helm/Chart.yaml", "appVersion: 0.2.0", "appVersion: 0.1.0", "Chart.yaml: 0.1.0"),
        ("deploy/docker/agent.Dockerfile", ":0.2.0", ":0.1.0", "agent.Dockerfile: 0.1.0"),
        ("CHANGELOG.md", "### Added\n- A thing.\n", "", "nothing under"),
    ],
)
def test_a_tree_that_is_not_ready_stays_as_it_was(
    tree: Path, name: str, old: str, new: str, reason: str
) -> None:
    replace(tree, name, old, new)
    with pytest.raises(SystemExit, match=reason):
        release.main(tree)
    assert git(tree, "status", "--porcelain") == ""


def test_a_build_that_fails_leaves_the_changelog(tree: Path) -> None:
    replace(tree, "pyproject.toml", 'packages = ["windlass"]', "packages = 1")
    with pytest.raises(SystemExit, match="hatchling"):
        release.main(tree)
    assert git(tree, "status", "--porcelain") == ""


def test_a_tag_of_the_version_or_an_open_change_is_refused(tree: Path) -> None:
    git(tree, "tag", "v0.2.0")
    with pytest.raises(release.NotReady, match=r"0\.2\.0 is released already"):
        release.new_version(tree, CHANGELOG)
    (tree / "more.py").touch()
    with pytest.raises(release.NotReady, match=r"not clean:\n\?\? more.py"):
        release.new_version(tree, CHANGELOG)


def test_everything_names_the_version_of_this_tree() -> None:
    version = tomllib.loads((release.ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert release.naming_another(release.ROOT, version) == []
