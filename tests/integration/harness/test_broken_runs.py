"""A run that pytest itself broke off says at its very end what had failed, and why it ended."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]

HOOKS = """
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(item):
        result = yield
        if item.name == "test_after":
            raise LookupError("a hook of ours")
        return result
"""

SUITE = """
    def test_fails(): assert 1 == 2
    def test_after(): pass
    def test_later(): pass
"""


def _run(folder: Path, *options: str) -> list[str]:
    for name, text in (("conftest.py", HOOKS), ("test_some.py", SUITE)):
        (folder / name).write_text(text.replace("\n    ", "\n"))
    paths = [str(REPOSITORY / each) for each in ("", "services", "agent")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.broken_runs", *options],
        cwd=folder,
        env={**kept, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode
    return ended.stdout.splitlines()


def test_the_last_lines_name_what_failed_and_the_error_of_the_worker(tmp_path: Path) -> None:
    lines = _run(tmp_path, "-n", "1")
    end = lines[lines.index("pytest broke the run off:") :]
    assert any("LookupError: a hook of ours" in line for line in end)
    assert end[-1] == "FAILED test_some.py::test_fails (call): assert 1 == 2"


def test_a_run_that_has_a_summary_says_nothing_more(tmp_path: Path) -> None:
    lines = _run(tmp_path, "-k", "fails")
    assert "1 failed" in lines[-1]
