"""The server's process: launched by us, or found alive after we were killed."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from windlass.core.account import ENVIRONMENT
from windlass.core.descriptors import readable
from windlass.embedded_postgres.cluster import log_tail
from windlass.embedded_postgres.errors import PostgresError
from windlass.embedded_postgres.place import Place

# Recovery after a crash replays at most max_wal_size.
READY_SECONDS = 120.0
_FAST_SECONDS = 20.0
_IMMEDIATE_SECONDS = 5.0
_ORPHAN_SECONDS = 10.0
# Where the kernel does not tell of a process that ends.
_LOOK_SECONDS = 0.2


class Postmaster:
    """A running server of one place."""

    def __init__(
        self, place: Place, process: psutil.Process, child: subprocess.Popen[bytes] | None = None
    ):
        self._place = place
        self._process = process
        self._child = child
        self.pid = process.pid

    @classmethod
    def launch(cls, place: Place) -> "Postmaster":
        """Starts the server, in a session of its own: a terminal's Ctrl-C is not for it."""
        with place.startup_log.open("wb") as log:
            place.startup_log.chmod(0o600)
            child = subprocess.Popen(
                # A restart must not fork this process, which by then has gRPC in it.
                place.account.becoming(
                    str(place.program("postgres")),
                    f"-D{place.cluster}",
                    f"-cconfig_file={place.settings / 'postgresql.conf'}",
                ),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=ENVIRONMENT,
                umask=0o077,
            )
        return cls(place, psutil.Process(child.pid), child)

    @classmethod
    def find(cls, place: Place) -> "Postmaster | None":
        """The live server of the place, known by the folder that it stands in, not by its pid."""
        state = _pid_file(place)
        if not state:
            return None
        try:
            process = psutil.Process(int(state[0]))
        except (psutil.NoSuchProcess, ValueError):
            return None
        return cls(place, process) if _stands_in(process, place.cluster) else None

    @staticmethod
    async def clear_the_way(place: Place) -> None:
        """Waits for the backends of a killed server, which bar the next one's start."""
        deadline = time.monotonic() + _ORPHAN_SECONDS
        while _pid_file(place) and time.monotonic() < deadline:
            if not any(_stands_in(other, place.cluster) for other in psutil.process_iter()):
                # Its pid may be a stranger's by now, or a zombie's that nobody buries, and
                # PostgreSQL would take that for a server of its own.
                for lock in (place.cluster / "postmaster.pid", place.socket_lock):
                    lock.unlink(missing_ok=True)
                return
            await asyncio.sleep(0.05)

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        if self._child is not None:
            return self._child.poll() is None
        try:
            return self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    async def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Returns when it takes connections; raises PostgresError when it ends or is too slow."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            state = _pid_file(self._place)
            if len(state) > 7 and state[0] == str(self.pid) and state[7] == "ready":
                return
            if not self.alive:
                said = log_tail(self._place.startup_log)
                raise PostgresError(f"PostgreSQL ended at its start: {said}")
            await asyncio.sleep(0.01)
        raise PostgresError(f"PostgreSQL was not ready within {timeout:.0f} s.")

    async def gone(self, timeout: float | None = None) -> bool:
        """Waits until the process has ended; False after `timeout` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._ended()
        return not self.alive

    async def _ended(self) -> None:
        descriptor = _pidfd(self.pid)
        if descriptor is None:
            while self.alive:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
            return
        try:
            # Only now is it known that the descriptor is not a stranger's.
            if self.alive:
                await readable(descriptor)
        finally:
            os.close(descriptor)

    async def stop(self) -> None:
        """Ends it: fast, then at once, then by force; the last two recover at the next start."""
        for number, seconds in (
            (signal.SIGINT, _FAST_SECONDS),
            (signal.SIGQUIT, _IMMEDIATE_SECONDS),
            (signal.SIGKILL, _IMMEDIATE_SECONDS),
        ):
            if self.alive:
                # psutil compares the start time, so a reused pid is safe.
                try:
                    self._process.send_signal(number)
                except psutil.NoSuchProcess:
                    return
            if await self.gone(seconds):
                return


def _pidfd(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; None if the system has none."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _pid_file(place: Place) -> list[str]:
    try:
        lines = (place.cluster / "postmaster.pid").read_text().splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines]


def _stands_in(process: psutil.Process, cluster: Path) -> bool:
    try:
        return (
            process.pid != os.getpid()
            and process.name() == "postgres"
            and process.status() != psutil.STATUS_ZOMBIE
            and Path(process.cwd()) == cluster
        )
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
