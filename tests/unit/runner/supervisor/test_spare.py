"""A trainer that waits is given the job that it was made for, and no other."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from windlass.confinement import Bare, Walls
from windlass_agent.runner.supervisor.spare import SpareTrainer
from windlass_agent.runner.supervisor.trainer import TrainerProcess

COMMAND = (sys.executable, "-c", "import sys; open('told', 'w').write(sys.stdin.read())")
ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
async def trainer(tmp_path: Path) -> AsyncIterator[TrainerProcess]:
    """A trainer that writes what it is told."""
    made = await TrainerProcess.start(
        COMMAND,
        env=ENV,
        walls=Walls(folder=tmp_path),
        log=tmp_path / "log",
        confinement=Bare(),
        waits=True,
    )
    try:
        yield made
    finally:
        made.kill()
        await made.exited


async def test_it_is_told_its_arguments(trainer: TrainerProcess, tmp_path: Path) -> None:
    walls = Walls(folder=tmp_path)
    spare = SpareTrainer(trainer, COMMAND, ENV, walls)
    assert await spare.take((*COMMAND, "sft", "--seed=7"), env=ENV, walls=walls) is trainer
    assert await trainer.exited == 0
    assert (tmp_path / "told").read_text() == '["sft","--seed=7"]'


@pytest.mark.parametrize(
    "wish",
    [
        {"command": (sys.executable, "-m", "another", "sft")},
        {"env": {**ENV, "WINDLASS_GRADES_SOCKET": "/grades.sock"}},
        {"network": True},
        {"nests": True},
        {"readable": (Path("/grader.json"),)},
    ],
)
async def test_it_ends_when_a_job_needs_another(
    trainer: TrainerProcess, tmp_path: Path, wish: dict[str, Any]
) -> None:
    spare = SpareTrainer(trainer, COMMAND, ENV, Walls(folder=tmp_path))
    asked = {"command": (*COMMAND, "sft"), "env": ENV, **wish}
    command, env = asked.pop("command"), asked.pop("env")
    assert await spare.take(command, env=env, walls=Walls(folder=tmp_path, **asked)) is None
    assert trainer.exited.done()
    assert not (tmp_path / "told").exists()


async def test_one_that_has_ended_is_not_taken(trainer: TrainerProcess, tmp_path: Path) -> None:
    walls = Walls(folder=tmp_path)
    spare = SpareTrainer(trainer, COMMAND, ENV, walls)
    trainer.kill()
    await trainer.exited
    assert await spare.take((*COMMAND, "sft"), env=ENV, walls=walls) is None
