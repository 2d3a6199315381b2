"""Launcher of an attempt's runner: confined to its folder, with its resource limits."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windlass.api.jobs.v1 import jobs_pb2
from windlass.confinement import Bare, Confinement, Walls
from windlass.confinement.environment import child_environment
from windlass_agent.executors import world
from windlass_agent.executors.process import processes
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.processes import Child

RUNNER_COMMAND = (sys.executable, "-P", "-m", "windlass_agent.runner")
LOG = "log"


@dataclass(frozen=True, kw_only=True)
class Runners:
    """Settings shared by all runners of an agent."""

    command: Sequence[str]
    agent_address: str
    confinement: Confinement = field(default_factory=Bare)
    # What runners may read beside their own folder.
    readable: tuple[Path, ...] = ()

    def start(
        self,
        name: str,
        folder: Path,
        *,
        resources: jobs_pb2.Resources,
        allotment: Allotment,
        token: int,
        flags: Sequence[str] = (),
    ) -> Child:
        """Starts a runner that works in a new `folder`; raises OSError.

        `name` is that of its walls. The runner reads its token from the descriptor `token`.
        """
        folder.mkdir(mode=0o700)
        (folder / LOG).touch(mode=0o600)
        self.confinement.give(name, folder)
        arguments = ["--agent", self.agent_address, "--workdir", str(folder)]
        command = [*self.command, *arguments, "--token-fd", str(token), *flags]
        walls = Walls(
            readable=self.readable,
            writable=(folder,),
            folder=folder,
            network=True,
            nests=True,
            devices=allotment.nodes(),
        )
        limits = allotment.limits()
        with self.confinement.launch(command, walls, name=name, limits=limits) as launch:
            return processes.start(
                launch,
                folder=folder,
                log=folder / LOG,
                environment=child_environment(confined=self.confinement.confines)
                | world.alone(resources)
                | allotment.environment(world.processes_of(resources)),
                fds=(token,),
                confined=self.confinement.confines,
            )
