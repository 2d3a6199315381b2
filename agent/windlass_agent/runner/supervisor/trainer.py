"""The trainer's process: its own group, tied to the runner's life, told little."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from windlass.confinement import Confinement, Walls, exit_code, innermost
from windlass_agent.memory import default_limits
from windlass_agent.runner.grading.rewards import GRADER_VARIABLE
from windlass_agent.runner.protocol import tether
from windlass_agent.runner.protocol.trainer_events import METRICS_VARIABLE

# In the working folder, for a trainer that learns from rewards.
GRADER_FILE = "grader.json"

# Where programs, libraries and devices are, and torchrun's own: nothing else passes.
_PASSED = frozenset(
    {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES"}
    | {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
    | {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_NUM_THREADS"}
)
_PASSED_PREFIXES = ("PET_", "NCCL_", "GLOO_")
# There is no other interface to meet on.
_ALONE = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}


class TrainerProcess:
    """A running trainer. Its group is its own, its session the runner's.

    So a group can be signalled without the runner, and an agent finds everything by session.
    """

    def __init__(self, process: asyncio.subprocess.Process, *, confined: bool) -> None:
        self._process = process
        self._confined = confined
        self.exited: asyncio.Future[int] = asyncio.ensure_future(self._wait())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        walls: Walls,
        log: Path,
        confinement: Confinement,
        waits: bool = False,
    ) -> Self:
        """Starts a command in the walls' folder; its output is appended to `log`.

        One that `waits` reads what it is told.
        """
        confined = confinement.confines
        if not confined:
            # -I -S: the tether needs the standard library alone, and starts in 15 ms.
            command = (sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command)
        within = confinement.launch(command, walls, name="trainer", limits=default_limits())
        with log.open("ab") as output, within as launch:
            process = await asyncio.create_subprocess_exec(
                *launch.command,
                stdin=asyncio.subprocess.PIPE if waits else asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(env) | (_ALONE if confined else {}),
                cwd=walls.folder,
                process_group=0,
                pass_fds=launch.descriptors,
            )
        return cls(process, confined=confined)

    async def tell(self, words: bytes) -> None:
        """Writes a spare trainer its job; raises ConnectionError when it is gone."""
        if self._process.stdin is None:
            raise ConnectionError("the trainer takes no job: it was not started as a spare")
        self._process.stdin.write(words)
        self._process.stdin.write_eof()
        await self._process.stdin.drain()

    def terminate(self) -> None:
        """Asks the group to save and end; within walls the command alone, not who waits for it."""
        if not self._confined:
            self._signal(signal.SIGTERM)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(innermost(self._process.pid), signal.SIGTERM)

    def kill(self) -> None:
        """Kills what is left of the group."""
        self._signal(signal.SIGKILL)

    async def _wait(self) -> int:
        code = await self._process.wait()
        return exit_code(code) if self._confined else code

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def environment(inherited: Mapping[str, str], workdir: Path, metrics: Path) -> dict[str, str]:
    """The environment of a trainer: no secret, no hub, folders of its own."""
    scratch = workdir / "scratch"
    passed = {
        name: value
        for name, value in inherited.items()
        if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }
    return passed | {
        METRICS_VARIABLE: str(metrics),
        GRADER_VARIABLE: str(workdir / GRADER_FILE),
        "HOME": str(scratch),
        # Libraries name folders after it, and within walls there is no table of users.
        "USER": "windlass",
        "TMPDIR": str(scratch),
        "HF_HOME": str(scratch / "huggingface"),
        "HF_DATASETS_CACHE": str(scratch / "datasets"),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DISABLE_KUBEFLOW_INTEGRATION": "TRUE",
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        "TOKENIZERS_PARALLELISM": "true",
    }
