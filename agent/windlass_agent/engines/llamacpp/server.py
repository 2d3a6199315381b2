"""One `llama-server`: its process, its socket, and its slots."""

import asyncio
import contextlib
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import aiohttp

from windlass.engine_arguments import DRAFT_TOKENS
from windlass_agent.engines.kept.engine import KeptFailure
from windlass_agent.engines.kept.program import KeptProgram, finish, start_program
from windlass_agent.engines.llamacpp.slots import ServerSlots

START_SECONDS = 900.0
END_SECONDS = 5.0
_POLL_SECONDS = 0.02
_PROBE_SECONDS = 5.0
# Lines of a stream may be long; these hold a whole answer.
_LINE_BYTES = 2**20
_ERROR = re.compile(rb"[\d.]+ E (.*)")
_MOST_ERRORS = 10
# It answers without a draft that does not suit the model.
_NO_DRAFT = "failed to initialize speculative decoding"
_ALWAYS = (
    "--offline",
    "--no-webui",
    "--no-slots",
    "--metrics",
    "--jinja",
    # Prompts in memory beside the slots', which anybody's request could continue.
    "--cache-ram", "0",
    # An answer ends where the context does, rather than lose its beginning.
    "--no-context-shift",
    "--no-kv-unified",
    # Each request says which adapter it uses.
    "--lora-init-without-apply",
    "--log-colors", "off",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings that all servers of one engine share."""

    program: Path
    model: Path
    """GGUF; of several parts the first."""
    folder: Path
    """Where sockets lie."""
    neighbours: Path | None = None
    """Folder by which another container starts it; None: it is a process of ours."""
    draft: Path | None = None
    """GGUF of a model that guesses tokens, likewise."""
    draft_tokens: int = DRAFT_TOKENS
    context: int
    """Tokens of a prompt and its answer."""
    concurrency: int = 4
    max_waiting: int = 64
    batched_tokens: int | None = None
    cpus: int = 0
    on_gpus: bool = False
    continues: bool = True
    """Whether a slot's prompt may be continued at all."""

    def command(self, socket: Path, adapters: Sequence[Path]) -> list[str]:
        """The arguments of a server that listens at `socket`, program first."""
        command = [
            str(self.program),
            "--model", str(self.model),
            "--host", str(socket),
            "--parallel", str(self.concurrency),
            "--ctx-size", str(self.context * self.concurrency),
            "--n-gpu-layers", "999" if self.on_gpus else "0",
            *_ALWAYS,
        ]  # fmt: skip
        if self.cpus:
            command += ["--threads", str(self.cpus)]
        if self.batched_tokens:
            command += ["--batch-size", str(self.batched_tokens)]
        if self.draft:
            command += [
                "--spec-type", "draft-simple",
                "--spec-draft-model", str(self.draft),
                "--spec-draft-n-max", str(self.draft_tokens),
                "--spec-draft-ngl", "999" if self.on_gpus else "0",
            ]  # fmt: skip
        for adapter in adapters:
            command += ["--lora", str(adapter)]
        return command


class ServerFailure(KeptFailure):
    """A server that did not start, or ended; the message is for people."""


class LlamaServer:
    """A server that runs."""

    def __init__(
        self,
        process: KeptProgram,
        session: aiohttp.ClientSession,
        socket: Path,
        settings: ServerSettings,
        adapters: Sequence[str],
    ):
        self._process = process
        self._socket = socket
        self.session = session
        self.slots = ServerSlots(settings.concurrency, max_waiting=settings.max_waiting)
        self.adapters = tuple(adapters)
        """Names of its adapters, in its order."""
        self.renders = frozenset[str]()
        """Parts that its chat template renders, of `tools` and `tool_calls`."""
        self._errors: list[str] = []
        self._output = asyncio.create_task(self._pass_on())

    @classmethod
    async def start(
        cls, settings: ServerSettings, number: int, adapters: Sequence[tuple[str, Path]]
    ) -> "LlamaServer":
        """Starts server `number` of an engine and waits until it answers; raises ServerFailure."""
        socket = settings.folder / f"{number}.sock"
        command = settings.command(socket, [path for _, path in adapters])
        process = await start_program(command, settings.neighbours)
        session = aiohttp.ClientSession(
            "http://engine",
            connector=aiohttp.UnixConnector(path=str(socket), limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_LINE_BYTES,
        )
        server = cls(process, session, socket, settings, [name for name, _ in adapters])
        try:
            async with asyncio.timeout(START_SECONDS):
                await server._until_ready()
                await server._read_template()
                server._require_guesses()
        except BaseException as error:
            await server.end()
            if isinstance(error, (TimeoutError, aiohttp.ClientError)):
                raise ServerFailure("llama-server did not answer in time") from error
            raise
        return server

    async def _until_ready(self) -> None:
        while self._process.returncode is None:
            if self._socket.exists() and await self.answers():
                return
            await asyncio.sleep(_POLL_SECONDS)
        await finish(self._output)
        # The cause comes first, and then what follows from it.
        why = f": {self._errors[0]}" if self._errors else ""
        raise ServerFailure(f"llama-server ended with code {self._process.returncode}{why}")

    async def _read_template(self) -> None:
        async with self.session.get("/props") as response:
            able = (await response.json()).get("chat_template_caps", {})
        self.renders = frozenset(
            what for what in ("tools", "tool_calls") if able.get(f"supports_{what}")
        )

    def _require_guesses(self) -> None:
        """Raises ServerFailure where it goes on without the draft that it was given."""
        for error in self._errors:
            if _NO_DRAFT in error:
                raise ServerFailure(f"llama-server does not take the draft model: {error}")

    async def _pass_on(self) -> None:
        """Writes the process's output to ours, and keeps the errors in it."""
        stdout, rest = cast("asyncio.StreamReader", self._process.stdout), b""
        while block := await stdout.read(_LINE_BYTES):
            sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
            *lines, rest = (rest + block).split(b"\n")
            rest = rest[:_LINE_BYTES]
            found = filter(None, map(_ERROR.match, lines))
            self._errors += [one[1].decode(errors="replace") for one in found]
            del self._errors[_MOST_ERRORS:]

    async def answers(self) -> bool:
        """Returns True if it answers and has its model loaded."""
        if self.session.closed:
            return False
        limit = aiohttp.ClientTimeout(total=_PROBE_SECONDS)
        try:
            async with self.session.get("/health", timeout=limit) as response:
                return response.ok
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def metrics(self) -> bytes:
        """Returns its page for Prometheus; raises aiohttp.ClientError or TimeoutError."""
        limit = aiohttp.ClientTimeout(total=_PROBE_SECONDS)
        async with self.session.get("/metrics", timeout=limit) as response:
            response.raise_for_status()
            return await response.read()

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
        self._socket.unlink(missing_ok=True)
