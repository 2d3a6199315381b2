"""One resident: its keeper and the process that it keeps, in one group and in one folder."""

import asyncio
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import aiohttp

from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.core import telemetry
from windlass_agent.folders import private_folder
from windlass_agent.keeper.health import STARTED
from windlass_agent.keeper.host.census import MARK, disk_bytes, members, memory_bytes
from windlass_agent.keeper.host.last_lines import LastLines
from windlass_agent.keeper.host.order import UnsoundOrder, require_sound_resident
from windlass_agent.runner.protocol import tether

# For the pass that a trainer is at.
END_SECONDS = 10.0
# After which the log tells of what was killed and stays.
_KILLED_SECONDS = 30.0
_LOOK_SECONDS, _STARTED_SECONDS, _OUTPUT_SECONDS = 0.05, 0.3, 1.0
# Between looks at its memory, and at its folder.
MEMORY_SECONDS, DISK_SECONDS = 1.0, 10.0
# As of a shell, for a command that cannot be run.
_UNSTARTED = 126

log = telemetry.logger("host")


class HostedProcesses:
    """A resident from its start until nothing of it is left.

    `keeper` is the program of its keeper, with the words by which that calls the agent. `end` is
    set once it has ended by itself; `over` is set once no process and no file of it is there.
    """

    def __init__(self, order: pb.Resident, folder: Path, keeper: Sequence[str]):
        self.order = order
        self.end: pb.ResidentEnd | None = None
        self.over = asyncio.Event()
        # Of the processes that this one waits for.
        self.waited: set[int] = set()
        self._folder = folder
        self._keeper = keeper
        self._stopped = asyncio.Event()
        self._lines = LastLines(order.workload_id)
        self._group = 0
        self._following: list[asyncio.Task[None]] = []

    def stop(self) -> None:
        """Has it end."""
        self._stopped.set()

    async def run(self) -> None:
        """Lives from its start to its end, whatever brings that about."""
        end = pb.ResidentEnd(code=_UNSTARTED)
        try:
            require_sound_resident(self.order)
            end = await self._lived()
        except (OSError, UnsoundOrder) as error:
            self._lines.note(f"It cannot be started: {error}.")
        finally:
            # What has too much is given no time to get more.
            await self._clear(0.0 if end.exceeded else END_SECONDS)
        if not self._stopped.is_set():
            log.warning("resident_ended", workload=self.order.workload_id, code=end.code)
            end.last_lines = str(self._lines)
            self.end = end
        self.over.set()

    async def _lived(self) -> pb.ResidentEnd:
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        private_folder(private_folder(self._folder) / "tmp")
        order = self.order
        keeper = [*self._keeper, "--resident", order.workload_id, *order.keeper]
        watched = [self._program(keeper), self._kept(), self._bounds(), self._stopping()]
        tasks = [asyncio.create_task(one) for one in watched]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _program(self, words: Sequence[str]) -> pb.ResidentEnd:
        """Runs a program to its end."""
        order = self.order
        marked = dict(order.environment) | {MARK: order.workload_id}
        given = [f"{name}={value}" for name, value in marked.items()]
        # The tether needs the standard library alone, and keeps the process.
        tied = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), "env", *given]
        process = await asyncio.create_subprocess_exec(
            *tied,
            *words,
            cwd=self._folder / "tmp",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=self._group,
        )
        self.waited.add(process.pid)
        self._group = self._group or process.pid
        if process.stdout is not None:
            self._following.append(asyncio.create_task(self._lines.follow(process.stdout)))
        code = await process.wait()
        return pb.ResidentEnd(code=code if code >= 0 else 128 - code)

    async def _kept(self) -> pb.ResidentEnd:
        """Runs what is kept once its weights are there."""
        url = f"http://127.0.0.1:{self.order.health_port}{STARTED}"
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while not await _answers_well(session, url):  # noqa: ASYNC110
                await asyncio.sleep(_STARTED_SECONDS)
        return await self._program(self.order.command)

    async def _bounds(self) -> pb.ResidentEnd:
        """Returns once it has more memory or disk than it may."""
        clock, looked = asyncio.get_running_loop().time, float("-inf")
        while True:
            await asyncio.sleep(MEMORY_SECONDS)
            if self._group and self._memory() > self.order.memory_bytes:
                # A child that has yet to run its program shows its parent's memory.
                await asyncio.sleep(_LOOK_SECONDS)
                if self._memory() > self.order.memory_bytes:
                    return pb.ResidentEnd(code=128 + signal.SIGKILL, exceeded="memory")
            if clock() - looked < DISK_SECONDS:
                continue
            looked = clock()
            if await asyncio.to_thread(disk_bytes, self._folder) > self.order.disk_bytes:
                return pb.ResidentEnd(code=128 + signal.SIGKILL, exceeded="disk")

    def _memory(self) -> int:
        return memory_bytes(members(self.order.workload_id, self._group))

    async def _stopping(self) -> pb.ResidentEnd:
        await self._stopped.wait()
        return pb.ResidentEnd()

    async def _clear(self, seconds: float) -> None:
        """Ends whatever of it runs, by force after so long, and removes its folder."""
        if self._group:
            with suppress(OSError):
                os.killpg(self._group, signal.SIGTERM)
        if not await self._left(seconds):
            # It is there until the kernel lets it go: its devices are nobody else's meanwhile.
            for tried in itertools.count(1):
                for pid in members(self.order.workload_id, self._group):
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                if await self._left(_LOOK_SECONDS):
                    break
                if tried == int(_KILLED_SECONDS / _LOOK_SECONDS):
                    log.error("resident_stays", workload=self.order.workload_id)
        if self._following:
            _, open_still = await asyncio.wait(self._following, timeout=_OUTPUT_SECONDS)
            for task in open_still:
                task.cancel()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _left(self, seconds: float) -> bool:
        """Returns True once no process of it runs, and False after so long."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while members(self.order.workload_id, self._group):
            if clock() >= until:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True


async def _answers_well(session: aiohttp.ClientSession, url: str) -> bool:
    with suppress(aiohttp.ClientError, TimeoutError):
        async with session.get(url) as answer:
            return answer.status == 200
    return False
