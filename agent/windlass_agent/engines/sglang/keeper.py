"""One SGLang server, its adapters by their public names, and requests that end when left."""

import asyncio
import json
import math
import shutil
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import aiohttp
import msgspec

from windlass.core.telemetry import logger
from windlass.inference_api.errors import model_not_found
from windlass_agent.engines.boundary import trace
from windlass_agent.engines.kept.engine import KeptFailure
from windlass_agent.engines.sglang.server import MODEL, SglangCommand, SglangServer

_CONFIG = "adapter_config.json"
_JSON = {"Content-Type": "application/json"}
_log = logger("engine")


class _Renamed(NamedTuple):
    # SGLang's name.
    theirs: str
    folder: Path


class SglangKeeper:
    """Answers for a model and its adapters.

    Each load has a name of its own there: SGLang loads an adapter that was unloaded again when a
    request names it.
    """

    def __init__(self, command: SglangCommand, *, model: str, max_adapters: int):
        self.model = model
        self.max_adapters = max_adapters
        self.open = 0
        """Number of requests that are open."""
        self._command = command
        self._server: SglangServer | None = None
        # By their public names.
        self._adapters: dict[str, _Renamed] = {}
        self._loads = 0
        # SGLang's names of open requests by the public ones.
        self._requests: dict[str, str] = {}
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def adapters(self) -> Mapping[str, Path]:
        """The adapters that answer: by each id the folder that it was loaded from."""
        return {name: adapter.folder for name, adapter in self._adapters.items()}

    @property
    def context(self) -> int:
        """Tokens of a prompt and its answer together."""
        return self._started().context

    async def start(self) -> None:
        """Starts the server without adapters; raises KeptFailure."""
        self._server = await SglangServer.start(self._command)

    async def answers(self) -> bool:
        """Returns True if requests are answered."""
        return self._server is not None and await self._server.answers()

    async def metrics(self) -> bytes:
        """The page of the server for Prometheus; raises as that does."""
        return await self._started().metrics()

    async def failed(self) -> None:
        """Waits until the server has ended by itself."""
        code = await self._started().ended()
        _log.error("sglang_ended", code=code)

    def fields(self, model: str) -> dict[str, str]:
        """The fields by which SGLang knows a model or an adapter; raises ApiError 404."""
        if model == self.model:
            return {"model": MODEL}
        if model not in self._adapters:
            # SGLang would answer with the base.
            raise model_not_found(model)
        return {"model": MODEL, "lora_path": self._adapters[model].theirs}

    @asynccontextmanager
    async def posted(
        self, path: str, body: dict[str, Any], request_id: str = ""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends a request; a block that ends before the answer does ends the work on it, at once.

        `request_id` is by what others may abort it, unless it has several answers.

        SGLang by itself looks every few seconds for clients that have left. Where a request has
        several answers there is no other way: it gives each a name that nobody is told.
        """
        server, name, response = self._started(), f"req-{uuid4().hex}", None
        content = msgspec.json.encode(body | {"rid": name})
        self.open += 1
        if request_id and body.get("n") in (None, 1) and isinstance(body.get("prompt", ""), str):
            self._requests[request_id] = name
        try:
            headers = {**_JSON, **trace.get()}
            async with server.session.post(path, data=content, headers=headers) as response:
                yield response
        finally:
            self.open -= 1
            if self._requests.get(request_id) == name:
                del self._requests[request_id]
            if response is None or not response.content.at_eof():
                self._spawn(self._abort(server, name))

    async def abort(self, request_ids: Collection[str]) -> bool:
        """Ends requests, which are answered with what they have; returns False if none is known."""
        names = [self._requests[one] for one in request_ids if one in self._requests]
        for name in names:
            await self._abort(self._started(), name)
        return bool(names)

    async def _abort(self, server: SglangServer, name: str) -> None:
        with suppress(aiohttp.ClientError, TimeoutError, RuntimeError):
            # A session that is closed is a RuntimeError.
            await server.steer("/abort_request", {"rid": name})

    async def load(self, name: str, folder: Path) -> None:
        """Serves the adapter in `folder` as `name`; one that is served stays.

        Raises KeptFailure.
        """
        async with self._changing:
            if name in self._adapters:
                # A caller that gave up waiting asks again.
                return
            self._loads += 1
            theirs = f"adapter-{self._loads}"
            own = self._command.folder / theirs
            path = await asyncio.to_thread(_shown, folder, own)
            body = {"lora_name": theirs, "lora_path": str(path)}
            try:
                refused = await self._started().steer("/load_lora_adapter", body)
            except (aiohttp.ClientError, TimeoutError) as error:
                raise KeptFailure(f"SGLang does not answer: {error!r}") from error
            if refused:
                await asyncio.to_thread(shutil.rmtree, own, ignore_errors=True)
                raise KeptFailure(refused)
            self._adapters[name] = _Renamed(theirs, folder)

    def unload(self, name: str) -> bool:
        """Stops serving an adapter; returns False if it is not loaded. Its open requests go on.

        SGLang answers once they have ended, so nobody waits for that.
        """
        adapter = self._adapters.pop(name, None)
        if adapter is not None:
            self._spawn(self._forget(adapter.theirs))
        return adapter is not None

    async def _forget(self, theirs: str) -> None:
        try:
            if refused := await self._started().steer(
                "/unload_lora_adapter", {"lora_name": theirs}
            ):
                _log.warning("adapter_not_unloaded", adapter=theirs, reason=refused)
        except (aiohttp.ClientError, TimeoutError, RuntimeError) as error:
            _log.warning("adapter_not_unloaded", adapter=theirs, reason=repr(error))
        await asyncio.to_thread(shutil.rmtree, self._command.folder / theirs, ignore_errors=True)

    async def close(self) -> None:
        """Ends the server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.end()

    def _started(self) -> SglangServer:
        if self._server is None:
            raise KeptFailure("SGLang has not started")
        return self._server

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _shown(folder: Path, target: Path) -> Path:
    """The adapter as SGLang reads it right: it scales every one by alpha / rank alone.

    Raises KeptFailure for what is no adapter.
    """
    try:
        config = json.loads((folder / _CONFIG).read_bytes())
        if not config.get("use_rslora"):
            return folder
        alpha = config["lora_alpha"] * math.sqrt(config["r"])
        # In a pod the folder outlives us, and names begin at the first again.
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        for file in folder.iterdir():
            if file.name != _CONFIG:
                (target / file.name).symlink_to(file)
        scaled = config | {"lora_alpha": alpha, "use_rslora": False}
        (target / _CONFIG).write_text(json.dumps(scaled))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise KeptFailure("The adapter has no adapter_config.json that can be read.") from error
    return target
