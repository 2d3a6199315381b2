"""Exit of a process started by torchrun, which sees only its exit code."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("pass", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('why')", 1),
        ("raise OSError('why')", 1),
    ],
)
def test_its_exit_code_is_kept_and_what_it_said_is_written(body: str, status: int) -> None:
    program = (
        "from windlass_agent.runner.trainers import ranks\n"
        f"def main():\n    print('said', end='')\n    {body}\n"
        "ranks.run(main)\n"
        "print('taken apart')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TORCHELASTIC_RUN_ID": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, "said"), done.stderr
    assert ("why" in done.stderr) is (status == 1)
