"""A process: the resources its modules share, and their start and stop."""

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from windlass.core import clock, telemetry
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.keyring import Keyring
from windlass.core.objects import ServedStore
from windlass.core.operations import Exposition, Operations
from windlass.core.rpc.clients import Clients
from windlass.core.rpc.interceptor import AuditSink
from windlass.core.rpc.server import Server
from windlass.core.rpc.tokens import TokenAuthority

log = telemetry.logger("app")
# The longest path that a Unix socket may have is 108 bytes on Linux, 104 on macOS.
SOCKET_PATH_BYTES = 100
STOP_SECONDS = 30.0
# For what was still in line when that had passed.
LEFTOVER_SECONDS = 3.0

Background = Callable[[], Awaitable[None]]
# Takes each part of the readiness and returns them as the process stands.
Excuse = Callable[[dict[str, str]], dict[str, str]]


class App:
    """Shared resources of modules, and the registry of their services, tasks and checks."""

    def __init__(
        self,
        *,
        settings: Settings,
        services: Collection[str],
        database: Database,
        keyring: Keyring,
        objects: ServedStore,
        tokens: TokenAuthority,
        wake: Wake,
        server: Server,
        clients: Clients,
        audit: AuditSink,
    ):
        self.settings = settings
        self.services = services
        self.database = database
        self.keyring = keyring
        self.objects = objects
        self.tokens = tokens
        self.wake = wake
        self.server = server
        self.clients = clients
        self.audit = audit
        self.ready = asyncio.Event()
        # What each service of this process erases, by `windlass.core.leaving.eraser`.
        self.erasing: dict[str, Any] = {}
        self.exposition = Exposition()
        self.operations = Operations(self.readiness, self.exposition)
        self._backgrounds: list[tuple[str, Background]] = []
        self._starting: list[asyncio.Event] = []
        self._at_ready: list[Callable[[], object]] = []
        self._excuses: list[Excuse] = []
        self._drains: list[Background] = []
        self._stack = AsyncExitStack()
        database.expose()
        self._checks: dict[str, Callable[[], Awaitable[None]]] = {
            "database": database.check,
            "objects": objects.check,
        }

    def serve(self, servicer: object, register: Callable[[Any, Any], None]) -> None:
        """Adds a servicer to this process's gRPC server."""
        self.server.add(servicer, register)

    def background(self, name: str, run: Background) -> None:
        """Runs a coroutine from start to stop; its failure stops the process, by name."""
        self._backgrounds.append((name, run))

    def await_start(self, started: asyncio.Event) -> None:
        """Counts the process as serving only once this event is set."""
        self._starting.append(started)

    def on_ready(self, call: Callable[[], object]) -> None:
        """Calls something once the process serves."""
        self._at_ready.append(call)

    def before_stop(self, drain: Background) -> None:
        """Waits for something once the process should stop, while all its parts still run."""
        self._drains.append(drain)

    def on_stop(self, close: Callable[[], Awaitable[Any]]) -> None:
        """Closes something at the end, last registered first."""
        self._stack.push_async_callback(close)

    def add_check(self, name: str, check: Callable[[], Awaitable[None]]) -> None:
        """Adds a part that must answer for the process to be ready."""
        self._checks[name] = check

    def excuse(self, excuse: Excuse) -> None:
        """Lets a part say what the process can do without for now: `degraded: ` begins that."""
        self._excuses.append(excuse)

    async def readiness(self) -> dict[str, str]:
        """Each part and `ok` or what is wrong with it; see `status_of`."""
        answers = {"process": "ok" if self.ready.is_set() else "starting or stopping"}
        for name, check in self._checks.items():
            try:
                async with asyncio.timeout(5):
                    await check()
                answers[name] = "ok"
            except Exception as error:
                answers[name] = f"{type(error).__name__}: {error}"
        for excuse in self._excuses:
            answers = excuse(answers)
        return answers

    async def run(
        self, stop: asyncio.Event, socket: Path, *, hurry: asyncio.Event | None = None
    ) -> None:
        """Serves until `stop` is set or a part fails, which it then raises.

        Once `hurry` is set, a stop waits for nothing that is open.
        """
        async with self._stack:
            await self.tokens.rotate()
            grpc = self.settings.grpc
            await self.server.start(
                socket=socket, listen=grpc.listen, tls=grpc.tls, reflect=grpc.reflection
            )
            if listen := self.settings.operations.listen:
                self._stack.push_async_callback(self.operations.stop)
                await self.operations.start(listen, socket.with_suffix(".operations"))
            tasks: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait(), name="stop")]
            for name, run in [
                ("wake", self.wake.run),
                ("clock", self._keep_time),
                ("key rotation", self._rotate_keys),
                *self._backgrounds,
            ]:
                tasks.append(asyncio.create_task(self._named(name, run), name=name))
            self.ready.set()
            log.info("process_ready", services=sorted(self.services))
            telling = asyncio.create_task(self._tell_ready(), name="ready")
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if all(task.get_name() == "stop" for task in done):
                    await self._drain(hurry or asyncio.Event())
            finally:
                telling.cancel()
                await self._wind_down(tasks)
            for task in done:
                if task.get_name() != "stop":
                    await task

    async def _tell_ready(self) -> None:
        for started in self._starting:
            await started.wait()
        for call in self._at_ready:
            call()

    async def _named(self, name: str, run: Background) -> None:
        try:
            await run()
        except Exception as error:
            log.error("part_failed", part=name, exc_info=error)
            raise

    async def _keep_time(self) -> None:
        await clock.keep_synchronized(self.database)

    async def _rotate_keys(self) -> None:
        while True:
            await asyncio.sleep(600)
            try:
                await self.tokens.rotate()
            except Exception as error:
                log.warning("key_rotation_failed", exc_info=error)

    async def _drain(self, hurry: asyncio.Event) -> None:
        """Waits for what is open, until `hurry` is set."""
        self.ready.clear()
        await self.server.set_serving(False)
        hurried: asyncio.Future[Any] = asyncio.ensure_future(hurry.wait())
        for drain in self._drains:
            draining: asyncio.Future[Any] = asyncio.ensure_future(drain())
            await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
        hurried.cancel()

    async def _wind_down(self, tasks: list[asyncio.Task[Any]]) -> None:
        self.ready.clear()
        await self.server.set_serving(False)
        # One after the other, last registered first: what the agent saves at its end goes
        # through the gateway, and its last words to the services.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                for task in reversed(tasks):
                    task.cancel()
                    await asyncio.wait([task])
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=LEFTOVER_SECONDS)
        await self.server.stop(grace_seconds=2.0)
        await self.clients.close()


def runtime_dir(data_dir: Path) -> Path:
    """The private folder of this installation's sockets, mode 0700.

    `<data>/run`, or a folder under the system's temporary one where that path
    is too long for a Unix socket.
    """
    folder = data_dir.resolve() / "run"
    if len(str(folder / "windlass-00000000.sock")) > SOCKET_PATH_BYTES:
        digest = hashlib.sha256(str(folder).encode()).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"windlass-{os.getuid()}-{digest}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    folder.chmod(0o700)
    return folder
