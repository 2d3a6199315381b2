"""The process of a trainer: started with a token on a pipe, which ends it when it closes.

Whoever started it holds the other end alone: however that process dies, the trainer ends too.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.confinement.environment import child_environment
from windlass.core import telemetry
from windlass.core.rpc.auth import new_secret
from windlass.tuning_api.trainers.seats import Seat

PROGRAM = (sys.executable, "-m", "windlass_agent.tuning")
# For the pass that it is at.
END_SECONDS = 10.0
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
# Where the processes of one run talk.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

log = telemetry.logger("trainer")


@dataclass(frozen=True)
class TrainerCommand:
    """Arguments that a trainer's process is started with."""

    # Its base model by name, and where that lies.
    model: str
    folder: Path
    max_rank: int
    # States and adapters lie below it, and nowhere else.
    checkpoints: Path
    # Where it gets a private folder for its socket.
    sockets: Path
    # Trains all parameters for one run, by an engine of that name or ours, in so many processes.
    is_full: bool = False
    engine: str = ""
    processes: int = 1

    def words(self, socket: Path) -> tuple[str, ...]:
        """The program and its arguments; our engine's processes find each other by torchrun."""
        words: tuple[str, ...] = (
            *("--socket", str(socket), "--checkpoints", str(self.checkpoints)),
            *("--model", self.model, "--folder", str(self.folder)),
            *("--max-rank", str(self.max_rank)),
        )
        if not self.is_full:
            return *PROGRAM, *words
        words += ("--full", "--engine", self.engine, "--processes", str(self.processes))
        python, *module = PROGRAM
        return python, *torchrun(1 if self.engine else self.processes), *module, *words

    async def launch(self, seat: Seat) -> "TuningProcess":
        """Starts it where its seat says; raises OSError."""
        return await TuningProcess.start(self, seat.environment)


def torchrun(processes: int) -> tuple[str, ...]:
    """Arguments of Python that start a module in several processes; none for one."""
    return (*_TORCHRUN, f"--nproc-per-node={processes}") if processes > 1 else ()


class TuningProcess:
    """A process that runs, and the socket that it serves or will serve."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, token: str):
        self._process = process
        self._folder = folder
        self.token = token

    @classmethod
    async def start(
        cls, command: TrainerCommand, environment: Mapping[str, str] | None = None
    ) -> "TuningProcess":
        """Starts a process, with more in its environment; raises OSError."""
        token = new_secret("trainer-")
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="t-", dir=command.sockets))
        process = await asyncio.create_subprocess_exec(
            *command.words(folder / "s"),
            stdin=asyncio.subprocess.PIPE,
            stdout=sys.__stderr__,
            env=child_environment() | _OFFLINE | LOOPBACK | dict(environment or {}),
            # A terminal's interrupt is for who serves; what waits there ends first.
            start_new_session=True,
        )
        log.info("trainer_started", base_model=command.model, pid=process.pid)
        made = cls(process, folder, token)
        # uvloop says of a pipe whose reader has ended already that its handle is closed.
        with contextlib.suppress(ConnectionError, RuntimeError):
            made._pipe.write(f"{token}\n".encode())
            await made._pipe.drain()
        return made

    @property
    def folder_bytes(self) -> int | None:
        """Returns None: it sees the folders of its caller."""
        return None

    @property
    def socket(self) -> Path:
        """The path of the socket that it serves once its model is loaded."""
        return self._folder / "s"

    @property
    def pid(self) -> int:
        """The id of the process, and of its session."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True once it is gone."""
        return self._process.returncode is not None

    async def wait(self) -> int:
        """Returns its exit code, negative for a signal, once it has ended."""
        return await self._process.wait()

    async def end(self) -> None:
        """Ends it after the pass that it is at, or by force, and removes its folder."""
        self._pipe.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        if not self.has_ended:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        log.info("trainer_ended", pid=self.pid, code=self._process.returncode)

    @property
    def _pipe(self) -> Any:
        return self._process.stdin
