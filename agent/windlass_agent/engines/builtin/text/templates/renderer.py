"""Asks the worker."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from windlass_agent.engines.builtin.text.templates.worker import CPU_SECONDS, MEMORY_BYTES

_WORKER = "windlass_agent.engines.builtin.text.templates.worker"
# The longest line that it may answer; what it renders is bounded there.
_LINE_BYTES = 2**27
# The kernel counts CPU time; this is for a worker that hangs in another way.
_PATIENCE_SECONDS = 60.0


class TemplateRefusal(Exception):
    """A template that says no, with its words."""


class TemplateTooCostly(Exception):
    """A template that needs more than it is given."""

    def __init__(self) -> None:
        memory = MEMORY_BYTES // 2**20
        super().__init__(f"It needs more than {CPU_SECONDS} s of CPU time, or {memory} MiB.")


class Renderer:
    """Renders templates one after the other, in a process that is replaced when it dies."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """The text; raises TemplateRefusal and TemplateTooCostly."""
        asked = {"template": template, "variables": variables}
        line = json.dumps(asked, default=str).encode() + b"\n"
        # Shielded: a client that leaves must not leave its answer to the next one.
        answer = await asyncio.shield(asyncio.create_task(self._ask(line)))
        if "refused" in answer:
            raise TemplateRefusal(answer["refused"])
        if "text" not in answer:
            raise TemplateTooCostly
        return str(answer["text"])

    async def close(self) -> None:
        """Ends the worker."""
        async with self._lock:
            await self._end()

    async def _ask(self, line: bytes) -> dict[str, Any]:
        async with self._lock:
            try:
                said = await asyncio.wait_for(self._exchange(line), _PATIENCE_SECONDS)
            except (OSError, ValueError, TimeoutError):
                said = b""
            if not said.endswith(b"\n"):
                await self._end()
                return {"costly": True}
            answer: dict[str, Any] = json.loads(said)
            if "costly" in answer:
                # Its memory may be in pieces.
                await self._end()
            return answer

    async def _exchange(self, line: bytes) -> bytes:
        process = self._process or await self._start()
        if process.stdin is None or process.stdout is None:
            return b""
        process.stdin.write(line)
        await process.stdin.drain()
        return await process.stdout.readline()

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            _WORKER,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LINE_BYTES,
            # Nothing of the engine's environment is a template's business.
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()
