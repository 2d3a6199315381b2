"""The servers of one engine: the one that answers, and one that only ends its requests."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from windlass.core.telemetry import logger
from windlass.inference_api.errors import asleep, model_not_found
from windlass_agent.engines.llamacpp import conversion
from windlass_agent.engines.llamacpp.server import LlamaServer, ServerFailure, ServerSettings

_POLL_SECONDS = 0.1
_log = logger("engine")


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A request's slot in a server."""

    server: LlamaServer
    slot: int
    continued: bool
    """Whether the prompt that the slot read last may be continued."""
    adapter: int | None
    """The adapter's number in the server; None: the base model alone."""


class _Converted(NamedTuple):
    # GGUF.
    file: Path
    folder: Path


class Keeper:
    """Answers for a model and its adapters; a new adapter comes with a new server.

    Only a server's start reads adapters. The weights are mapped from one file, so that two servers
    have them in memory once, where they are not on a GPU.
    """

    def __init__(self, settings: ServerSettings, *, model: str, base: Path, max_adapters: int):
        """`base` is the folder that the settings' file was written from."""
        self.settings = settings
        self.model = model
        self._base = base
        self.max_adapters = max_adapters
        self._adapters: dict[str, _Converted] = {}
        self._server: LlamaServer | None = None
        self._retired: LlamaServer | None = None
        self._started = 0
        self.asleep = False
        """True from the beginning of a sleep until it has woken."""
        self._changing = asyncio.Lock()
        self._failed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def adapters(self) -> Mapping[str, Path]:
        """The adapters that answer: by each name the folder that it was loaded from."""
        return {name: adapter.folder for name, adapter in self._adapters.items()}

    @property
    def context(self) -> int:
        """Tokens of a prompt and its answer."""
        return self.settings.context

    @property
    def open(self) -> int:
        """Number of requests that are open."""
        return sum(one.slots.open for one in (self._server, self._retired) if one)

    @property
    def renders(self) -> frozenset[str]:
        """Parts that the model's chat template renders, of `tools` and `tool_calls`."""
        return self._server.renders if self._server else frozenset()

    async def start(self) -> None:
        """Starts a server without adapters; raises ServerFailure."""
        self._adopt(await self._begin({}))

    async def answers(self) -> bool:
        """Returns True if requests are answered."""
        return self.asleep or (self._server is not None and await self._server.answers())

    async def metrics(self) -> bytes:
        """The page for Prometheus of the server that answers; raises as that does."""
        return b"" if self._server is None else await self._server.metrics()

    async def failed(self) -> None:
        """Waits until the server that answers has ended by itself."""
        await self._failed.wait()

    @asynccontextmanager
    async def turn(self, model: str, salt: str) -> AsyncIterator[Turn]:
        """Waits for a slot for a request of `model`; raises ApiError 404 or 503."""
        if self.asleep:
            raise asleep()
        server = self._server
        if server is None or (model != self.model and model not in self._adapters):
            raise model_not_found(model)
        adapter = None if model == self.model else server.adapters.index(model)
        async with server.slots.take(salt) as (slot, mine):
            yield Turn(
                server=server,
                slot=slot,
                continued=mine and self.settings.continues,
                adapter=adapter,
            )

    async def load(self, name: str, folder: Path) -> None:
        """Serves the adapter in `folder` as `name`; one that is served stays.

        Raises ConversionFailure or ServerFailure; what answered before answers on.
        """
        async with self._changing:
            if name in self._adapters:
                # A caller that gave up waiting asks again.
                return
            if self.asleep:
                raise ServerFailure("The engine sleeps.")
            target = self.settings.folder / f"{self._started}.gguf"
            try:
                await conversion.write_adapter(folder, base=self._base, target=target)
                # A third server would want memory that the machine may not have.
                while self._retired is not None:  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_SECONDS)
                adapters = {**self._adapters, name: _Converted(target, folder)}
                server = await self._begin(adapters)
            except BaseException:
                # It is tried again and again, and each time would leave a file.
                target.unlink(missing_ok=True)
                raise
            self._retire()
            # Those that were unloaded meanwhile stay so.
            self._adapters = {
                one: adapter
                for one, adapter in adapters.items()
                if one == name or one in self._adapters
            }
            self._adopt(server)

    async def sleep(self) -> None:
        """Ends the server once its requests have ended; one that sleeps sleeps on."""
        async with self._changing:
            self.asleep = True
            while self.open or self._retired is not None:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
            server, self._server = self._server, None
            if server is not None:
                await server.end()

    async def wake(self) -> None:
        """Starts a server with the adapters of before; raises ServerFailure."""
        async with self._changing:
            if self._server is None:
                self._adopt(await self._begin(self._adapters))
            self.asleep = False

    def unload(self, name: str) -> bool:
        """Stops serving an adapter; returns False if it is not loaded. Its open requests go on."""
        adapter = self._adapters.pop(name, None)
        if adapter is not None:
            adapter.file.unlink(missing_ok=True)
        return adapter is not None

    async def close(self) -> None:
        """Ends all servers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in (self._server, self._retired):
            if server is not None:
                await server.end()

    async def _begin(self, adapters: Mapping[str, _Converted]) -> LlamaServer:
        self._started += 1
        files = [(name, adapter.file) for name, adapter in adapters.items()]
        return await LlamaServer.start(self.settings, self._started, files)

    def _adopt(self, server: LlamaServer) -> None:
        self._server = server
        self._spawn(self._watch(server))

    def _retire(self) -> None:
        if self._server is not None:
            self._retired = self._server
            self._spawn(self._finish(self._server))

    async def _watch(self, server: LlamaServer) -> None:
        code = await server.ended()
        if server is self._server:
            _log.error("llama_server_ended", code=code)
            self._failed.set()

    async def _finish(self, server: LlamaServer) -> None:
        """Ends a server once its requests have."""
        while server.slots.open:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
        await server.end()
        self._retired = None

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
