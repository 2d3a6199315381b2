"""The python graders of requests, each in a sandbox of its own."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from windlass.core.errors import InvalidArgument
from windlass.core.telemetry import logger
from windlass.graders import Grader, Subject, Ungradable, programs, type_field
from windlass.sandbox import NoSandbox, Programs, Sandbox, make_sandbox

log = logger("gateway")
# At once: of this process, and of each project.
MAX_SCRIPTS = 8
MAX_PER_PROJECT = 2
OFF = "it is disabled (graders.python)"


class PythonGraders:
    """Runs Python graders. The sandbox is tried once, at the first use."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._made: Sandbox | NoSandbox | None = None
        self._making = asyncio.Lock()
        # Theirs, since a sandbox ends with the thread that made it.
        self._threads = ThreadPoolExecutor(MAX_SCRIPTS, thread_name_prefix="sandbox")
        self._rooms = defaultdict[str, asyncio.Semaphore](
            lambda: asyncio.Semaphore(MAX_PER_PROJECT)
        )

    async def admit(self, grader: Grader, *, at: str = "grader") -> None:
        """Raises InvalidArgument, naming the field, for a grader that cannot run here."""
        if not programs(grader):
            return
        try:
            await self._sandbox()
        except NoSandbox as error:
            raise InvalidArgument(
                "Python graders need a sandbox, and this installation cannot make one: "
                f"{error}. Use string_check, text_similarity, score_model, label_model, or a "
                "multi of them.",
                param=type_field(grader, at),
            ) from error

    async def scores(
        self, project_id: str, grader: Grader, subject: Subject
    ) -> Mapping[str, float | Ungradable]:
        """The result of each python grader, by its name; raises NoSandbox."""
        if not programs(grader):
            return {}
        running = Programs(await self._sandbox(), grader)
        async with self._rooms[project_id]:
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, running.scores, subject)
            finally:
                running.close()

    async def close(self) -> None:
        """Closes the sandboxes."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _sandbox(self) -> Sandbox:
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(_make) if self._enabled else NoSandbox(OFF)
        if isinstance(self._made, NoSandbox):
            raise NoSandbox(str(self._made))
        return self._made


def _make() -> Sandbox | NoSandbox:
    try:
        return make_sandbox()
    except NoSandbox as error:
        log.warning("python_graders_unavailable", error=str(error))
        return error
