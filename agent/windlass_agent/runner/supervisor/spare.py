"""A trainer that has imported its libraries before its job is known, and serves that one alone."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Self

import msgspec

from windlass.backends.trl.config import ENTRY_MODULE
from windlass.confinement import Walls
from windlass_agent.runner.protocol.waiting import WAIT
from windlass_agent.runner.supervisor.config import RunnerConfig
from windlass_agent.runner.supervisor.trainer import TrainerProcess


class SpareTrainer:
    """TRL's entry within the walls of a plain job; nothing of a tenant is in it."""

    def __init__(
        self, trainer: TrainerProcess, command: Sequence[str], env: Mapping[str, str], walls: Walls
    ) -> None:
        self._trainer = trainer
        self._fits = (tuple(command), dict(env), walls)

    @classmethod
    async def start(cls, config: RunnerConfig) -> Self:
        """Starts one; its imports go on behind."""
        config.make_folders()
        command = (config.python, "-m", ENTRY_MODULE)
        env, walls = config.variables(), config.walls()
        trainer = await TrainerProcess.start(
            (*command, WAIT),
            env=env,
            walls=walls,
            log=config.log,
            confinement=config.confinement,
            waits=True,
        )
        return cls(trainer, command, env, walls)

    async def take(
        self, command: Sequence[str], *, env: Mapping[str, str], walls: Walls
    ) -> TrainerProcess | None:
        """Begins a training; None, and ends, unless program, environment and walls are its own."""
        size = len(self._fits[0])
        fits = (tuple(command[:size]), dict(env), walls) == self._fits
        if fits and not self._trainer.exited.done():
            with contextlib.suppress(ConnectionError):
                await self._trainer.tell(msgspec.json.encode(command[size:]))
                return self._trainer
        self._trainer.kill()
        await self._trainer.exited
        return None
