"""A process that the kernel kills for memory is told from one that somebody killed."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.runner.cases import Case
from tests.support.environments.required import lacking
from tests.support.waiting import until

from windlass_agent.memory import out_of_memory_kills
from windlass_agent.runner.protocol.outcome import of_exit

LIMIT = 48 * 2**20
# The runner fits in, and no torch beside it.
TRAINERS_LIMIT = 256 * 2**20
# Enters the group, then lets a child ask for more than the group may have.
PROGRAM = """
import os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from windlass_agent.memory import out_of_memory_kills
before = out_of_memory_kills()
child = os.fork()
if child == 0:
    hoard = [bytearray(2**20) for _ in range(256)]
    os._exit(0)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), out_of_memory_kills() - before)
"""


@pytest.fixture
async def group() -> AsyncIterator[Path]:
    """A control group of little memory below our own."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        root = Path("/sys/fs/cgroup", "memory" if controllers else "")
        made = Path(f"{root}{own}", f"windlass-test-{os.getpid()}")
        limit = made / limit_of(made)
        if controllers not in ("", "memory"):
            continue
        try:
            made.mkdir()
            if limit.exists():
                limit.write_text(str(LIMIT))
                break
            made.rmdir()
        except OSError:
            continue
    else:
        lacking("needs a control group that may be divided")
    yield made
    # The kernel takes a moment to see that it is empty.
    await until(lambda: removed(made))


def limit_of(group: Path) -> str:
    """The name of the file with a group's limit."""
    return (
        "memory.limit_in_bytes" if group.is_relative_to("/sys/fs/cgroup/memory") else "memory.max"
    )


def removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


async def test_a_kill_for_memory_is_counted(group: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(group)], capture_output=True, text=True, check=True
    )
    code, kills = map(int, done.stdout.split())
    assert (code, kills) == (-9, 1)
    assert of_exit(code, tmp_path / "log", memory_kills=kills).code == "out_of_memory"


@pytest.mark.torch
async def test_a_job_is_told_how_much_there_was_and_what_to_lower(case: Case, group: Path) -> None:
    (group / limit_of(group)).write_text(str(TRAINERS_LIMIT))
    case.assign(max_length=256)
    runner = await case.start(cold=True)
    (group / "cgroup.procs").write_text(str(runner.pid))
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("out_of_memory", "hyperparameters")
    assert message == (
        "The trainer ran out of memory. It may use 256 MiB. It trained on 8 examples of up to 256 "
        "tokens at once: lower hyperparameters.batch_size or windlass.config.max_length, take a "
        "smaller model, or ask for more in windlass.resources."
    )


def test_a_kill_from_outside_is_not(tmp_path: Path) -> None:
    before = out_of_memory_kills()
    process = subprocess.Popen(["sleep", "600"])
    process.kill()
    kills = out_of_memory_kills() - before
    assert of_exit(process.wait(), tmp_path / "log", memory_kills=kills).code == "ProcessKilled"


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (1, "torch.OutOfMemoryError: CUDA out of memory.", "out_of_memory"),
        (1, "OSError: [Errno 28] No space left on device", "disk_full"),
        (1, "ValueError", "trainer_failed"),
        (137, "", "ProcessKilled"),
    ],
)
def test_last_words_tell_the_rest(tmp_path: Path, code: int, said: str, expected: str) -> None:
    (tmp_path / "log").write_text(said)
    assert of_exit(code, tmp_path / "log", memory_kills=0).code == expected
