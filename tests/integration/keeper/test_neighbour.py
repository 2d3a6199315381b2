"""Programs in the container beside ours, which is a plain sh of this machine here."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.support.waiting import until

from windlass_agent.engines.kept.neighbour import NeighbourProgram, clear, script


@asynccontextmanager
async def neighbour(folder: Path) -> AsyncIterator["subprocess.Popen[bytes]"]:
    shell = subprocess.Popen(script(folder), start_new_session=True)
    try:
        yield shell
    finally:
        shell.terminate()
        await asyncio.to_thread(shell.wait, 10)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert not list(tmp_path.glob("*.start")), "a program was left"


def test_kubernetes_leaves_the_script_as_it_is() -> None:
    (*_, text, _) = script(Path("/engine"))
    assert "$(" not in text
    assert "$$" not in text


async def test_a_program_says_what_it_says_and_how_it_ended(folder: Path) -> None:
    async with neighbour(folder):
        words = ["sh", "-c", 'echo "$1|$2|$3"; echo wrong >&2; exit 7', "x", "a b", "$HOME", "*"]
        program = await NeighbourProgram.start(words, folder)
        assert await program.stdout.readline() == b"a b|$HOME|*\n", "each word as it is"
        assert await program.wait() == 7
        assert await program.stdout.read() == b"wrong\n", "to its end"
        assert program.returncode == 7
        missing = await NeighbourProgram.start(["/no/such/program"], folder)
        assert await missing.wait() == 127
        assert b"/no/such/program" in await missing.stdout.read()
        with pytest.raises(ValueError, match="one line"):
            await NeighbourProgram.start(["echo", "a\nb"], folder)
        for one in (program, missing):
            one.terminate()


async def test_a_program_ends_when_it_is_told_and_at_once_when_it_does_not(folder: Path) -> None:
    async with neighbour(folder):
        gentle = "trap 'echo bye; exit 3' TERM; echo here; while :; do sleep 0.05; done"
        program = await NeighbourProgram.start(["sh", "-c", gentle], folder)
        deaf = "trap '' TERM; echo here; while :; do sleep 0.05; done"
        other = await NeighbourProgram.start(["sh", "-c", deaf], folder)
        for one in (program, other):
            assert await one.stdout.readline() == b"here\n"
            assert one.returncode is None
            one.terminate()
        assert await program.wait() == 3
        assert await program.stdout.read() == b"bye\n"
        other.kill()
        assert await other.wait() == 128 + signal.SIGKILL


async def test_what_ends_with_its_container_is_told(folder: Path) -> None:
    async with neighbour(folder) as shell:
        program = await NeighbourProgram.start(["sh", "-c", "echo; exec sleep 600"], folder)
        assert await program.stdout.readline()
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait(10)
        assert program.returncode is None
    async with neighbour(folder):
        assert await program.wait() == 128 + signal.SIGKILL
        await clear(folder)


def waiting(shell: int) -> list[int]:
    """Processes of a shell that wait for a program."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(shell).children()
        return [one.pid for one in children if one.name() != "sleep"]
    return [shell]


async def test_another_life_of_ours_ends_what_the_last_one_has_left(folder: Path) -> None:
    async with neighbour(folder) as shell:
        left = await NeighbourProgram.start(["sh", "-c", "echo $$; exec sleep 600"], folder)
        pid = int(await left.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        await clear(folder)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert not list(folder.iterdir())
        await until(lambda: not waiting(shell.pid))
        again = await NeighbourProgram.start(["true"], folder)
        assert await again.wait() == 0
        again.terminate()
