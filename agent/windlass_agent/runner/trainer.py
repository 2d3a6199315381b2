"""The trainer's process: its own group, tied to the runner's life, told little."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from windlass_agent.runner import tether
from windlass_agent.runner.rewards import GRADER_VARIABLE
from windlass_agent.runner.trainer_events import METRICS_VARIABLE

# In the working folder, for a trainer that learns from rewards.
GRADER_FILE = "grader.json"

# Where programs, libraries and devices are, and torchrun's own: nothing else passes.
_PASSED = frozenset(
    {"PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES"}
    | {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "OMP_NUM_THREADS"}
)
_PASSED_PREFIXES = ("PET_", "NCCL_", "GLOO_")


class Trainer:
    """A running trainer. Its group is its own, its session the runner's.

    So a group can be signalled without the runner, and an agent finds everything by session.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.exited: asyncio.Future[int] = asyncio.ensure_future(process.wait())

    @classmethod
    async def start(
        cls, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path
    ) -> Self:
        """Starts a command whose output is appended to `log`."""
        # -I -S: the tether needs the standard library alone, and starts in 15 ms.
        tethered = (sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command)
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *tethered,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                process_group=0,
            )
        return cls(process)

    def terminate(self) -> None:
        """Asks the group to save and end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the group, whatever is left of it."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def environment(inherited: Mapping[str, str], workdir: Path, metrics: Path) -> dict[str, str]:
    """What a trainer may know of its surroundings: no secret, no hub, folders of its own."""
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
