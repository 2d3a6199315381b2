"""SGLang's own server: its process, its port of this machine's loopback, and its key."""

import asyncio
import contextlib
import json
import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from windlass_agent.engines.kept.engine import KeptFailure
from windlass_agent.engines.kept.neighbour import NeighbourProgram
from windlass_agent.engines.kept.program import KeptProgram, finish

HOST = "127.0.0.1"
# Its name of the model; the public one is its keeper's affair.
MODEL = "base"
END_SECONDS = 4.0
_POLL_SECONDS = 0.1
_PROBE_SECONDS = 5.0
_CONTROL_SECONDS = 900.0
# Lines of a stream may be long.
_LINE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class SglangCommand:
    """The command of a server but for its address, and a folder that its keeper writes to."""

    words: tuple[str, ...]
    folder: Path
    is_neighbour: bool = False
    """Whether another container starts it, which sees that folder as well."""

    def at(self, port: int, key: str) -> list[str]:
        """The command of one that listens at `port` and answers whoever has `key`.

        The key is in a file: what stands in a command everybody on the machine can read.
        """
        settings = self.folder / "sglang.yaml"
        settings.touch(mode=0o600)
        settings.write_text(json.dumps({"api-key": key}))
        address = (f"--host={HOST}", f"--port={port}", f"--served-model-name={MODEL}")
        return [*self.words, *address, "--config", str(settings)]


class SglangServer:
    """A server that runs."""

    def __init__(self, process: KeptProgram, session: aiohttp.ClientSession):
        self._process = process
        self._output = asyncio.create_task(_pass_on(process))
        self.session = session
        self.context = 0
        """Tokens of a prompt and its answer."""

    @classmethod
    async def start(cls, command: SglangCommand) -> "SglangServer":
        """Starts a server and waits until it has generated a token; raises KeptFailure."""
        port, key = _free_port(), secrets.token_hex(16)
        process = await _begin(command, command.at(port, key))
        session = aiohttp.ClientSession(
            f"http://{HOST}:{port}",
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Authorization": f"Bearer {key}"},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_LINE_BYTES,
        )
        server = cls(process, session)
        try:
            await server._until_ready()
        except BaseException:
            await server.end()
            raise
        return server

    async def _until_ready(self) -> None:
        # `/ready` costs nothing; that it generates is asked once, then.
        while not (await self._is("/ready") and await self.answers()):
            if (code := self._process.returncode) is not None:
                # It has said why, unless somebody killed it. Shells tell signals from 128 on.
                signal = code - 128 if code > 128 else -code
                raise KeptFailure(f"SGLang was ended by signal {signal}" if signal > 0 else "")
            await asyncio.sleep(_POLL_SECONDS)
        async with self.session.get("/v1/models") as response:
            listed: dict[str, Any] = await response.json()
        self.context = int(listed["data"][0]["max_model_len"])

    async def answers(self) -> bool:
        """Returns True if it generates, or is busy with that."""
        return await self._is("/health_generate")

    async def _is(self, path: str) -> bool:
        if self.session.closed:
            return False
        limit = aiohttp.ClientTimeout(total=_PROBE_SECONDS)
        try:
            async with self.session.get(path, timeout=limit) as response:
                return response.ok
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def metrics(self) -> bytes:
        """Returns its page for Prometheus; raises aiohttp.ClientError or TimeoutError."""
        limit = aiohttp.ClientTimeout(total=_PROBE_SECONDS)
        async with self.session.get("/metrics", timeout=limit) as response:
            response.raise_for_status()
            return await response.read()

    async def steer(self, path: str, body: dict[str, Any]) -> str:
        """Calls a route that steers it; returns why it refused, empty if it did not.

        Raises aiohttp.ClientError or TimeoutError.
        """
        limit = aiohttp.ClientTimeout(total=_CONTROL_SECONDS)
        async with self.session.post(path, json=body, timeout=limit) as response:
            if response.ok:
                return ""
            with contextlib.suppress(aiohttp.ClientError, ValueError):
                answer = await response.json()
                return str(answer.get("error_message") or answer)
            return f"status {response.status}"

    async def ended(self) -> int:
        """Waits for the end of the process; returns its status."""
        return await self._process.wait()

    async def end(self) -> None:
        """Ends the process, and what is open with it."""
        await self.session.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await finish(self._output)


async def _begin(command: SglangCommand, words: list[str]) -> KeptProgram:
    if command.is_neighbour:
        return await NeighbourProgram.start(words, command.folder)
    # It writes where we do.
    return await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, cwd=command.folder
    )


async def _pass_on(process: KeptProgram) -> None:
    """Writes what a program in another container writes; nothing of one of our own."""
    while process.stdout is not None and (block := await process.stdout.read(_LINE_BYTES)):
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def launch(python: Path, flags: Sequence[str]) -> tuple[str, ...]:
    """The words that start SGLang with the Python of its environment."""
    return (str(python), "-m", "sglang.launch_server", *flags)
