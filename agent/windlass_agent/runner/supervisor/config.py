"""Configuration that a runner starts with, and the environment its trainers may see."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from windlass.confinement import Bare, Confinement, Walls, python_paths
from windlass_agent.runner.protocol.world import ALONE, World
from windlass_agent.runner.supervisor.trainer import GRADER_FILE, environment

_WRITTEN = ("dataset", "output", "scratch", "empty")
_READ = ("inputs", GRADER_FILE)


@dataclass(frozen=True, kw_only=True)
class RunnerConfig:
    """Settings of a runner: its folder, its environment and its timeouts.

    `grace_seconds` is for a trainer to save when asked to stop, `patience_seconds` for a store
    that is away, and for models that grade.
    """

    workdir: Path
    device: Literal["cpu", "cuda"]
    environ: Mapping[str, str]
    python: str
    grace_seconds: float
    patience_seconds: float
    # Where the outcome is left beside the working folder, such as a termination message.
    exit_message: Path | None = None
    world: World = ALONE
    # Of frameworks that need an environment of their own.
    pythons: Mapping[str, str] = field(default_factory=dict)
    # What trainers are started with.
    confinement: Confinement = field(default_factory=Bare)

    @property
    def metrics(self) -> Path:
        """The file that a trainer writes its events to."""
        return self.workdir / "trainer.jsonl"

    @property
    def log(self) -> Path:
        """The file of a trainer's output."""
        return self.workdir / "log"

    @property
    def grades(self) -> Path:
        """The socket where a trainer asks for the grades of models."""
        return self.workdir / "grades.sock"

    def make_folders(self) -> None:
        """Creates the folders and files that a trainer's walls show."""
        for name in ("inputs/model", *_WRITTEN):
            (self.workdir / name).mkdir(parents=True, exist_ok=True)
        self.metrics.touch()

    def variables(self) -> dict[str, str]:
        """The environment of a trainer."""
        variables = environment(self.environ, self.workdir, self.metrics)
        return variables | self.world.variables(grace_seconds=self.grace_seconds)

    def walls(self, *, asks: bool = False, nests: bool = False) -> Walls:
        """The walls of a trainer: its inputs, and its output folder; never a network.

        One that `asks` has the socket where it is graded.
        """
        read = [self.workdir / name for name in _READ]
        return Walls(
            readable=(
                *python_paths(*map(Path, self.pythons.values())),
                *(path for path in read if path.exists()),
                *((self.grades,) if asks else ()),
            ),
            writable=(*(self.workdir / name for name in _WRITTEN), self.metrics),
            folder=self.workdir / "empty",
            nests=nests,
            tied=True,
        )
