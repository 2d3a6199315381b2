"""The training worker of one engine, over its weights as they lie now."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from typing import Any, Protocol

from windlass_vllm.api.serving_fence import PausedEngine
from windlass_vllm.api.training_process import TrainingProcess
from windlass_vllm.messages import JobEnded, Ready
from windlass_vllm.refusal import Refused
from windlass_vllm.settings import EngineTrainingSettings
from windlass_vllm.weights.private_folder import PrivateFolder

_ATTACH_SECONDS = 300
_log = logging.getLogger("vllm.windlass_vllm")


class TrainedEngine(PausedEngine, Protocol):
    """The part of vLLM's client of an engine that training needs."""

    async def collective_rpc(
        self, method: str, timeout: float | None = None, args: tuple[Any, ...] = ()
    ) -> list[Any]:
        """Calls a method of each worker."""

    @property
    def errored(self) -> bool:
        """Returns whether the engine has died."""

    async def is_sleeping(self) -> bool:
        """Returns whether the engine gave its memory away."""

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Drops what was computed by older weights."""


class AttachedWorker:
    """A worker that begins with the first job, and begins anew where weights lie elsewhere."""

    def __init__(
        self, engine: TrainedEngine, folder: PrivateFolder, settings: EngineTrainingSettings
    ) -> None:
        self._engine, self._folder, self._settings = engine, folder, settings
        self._key, self.generation = secrets.token_bytes(32), 0
        self._process: TrainingProcess | None = None

    async def attached(self) -> TrainingProcess:
        """Returns the worker, over the weights as they lie now; raises Refused."""
        if await self._engine.is_sleeping():
            raise Refused("engine_asleep", "wake the engine first")
        is_shared = await self._is_shared()
        process = self._process
        if is_shared and process is not None and process.is_alive:
            return process
        await self.detach()
        if not is_shared:
            await self._share()
        folder, key, generation = self._folder.path, self._key, self.generation
        process = await TrainingProcess.start(folder, key, generation, self._settings)
        self._process = process
        try:
            async with asyncio.timeout(_ATTACH_SECONDS):
                await _ready(process.messages())
        except (Refused, TimeoutError) as error:
            await self.detach()
            if isinstance(error, Refused):
                raise
            raise Refused("worker_died", "the worker did not begin in time") from error
        return process

    async def detach(self) -> None:
        """Ends the worker."""
        if self._process is not None:
            process, self._process = self._process, None
            await process.kill()
            process.close()

    async def _is_shared(self) -> bool:
        """Whether weights still lie where they were shared last."""
        if not self.generation:
            return False
        return all(await self._engine.collective_rpc("windlass_is_shared"))

    async def _share(self) -> None:
        generation = self.generation + 1
        arguments = (str(self._folder.path), generation, self._key)
        try:
            said = await self._engine.collective_rpc("windlass_share", args=arguments)
        except Exception as error:
            message = "start vLLM with --worker-extension-cls"
            _log.warning("the weights cannot be shared: %s", error)
            raise Refused("no_extension", message) from error
        if len(said) != 1:
            raise Refused("many_ranks", "the weights are spread over more than one rank")
        if "reason" in said[0]:
            raise Refused(said[0]["reason"], said[0]["message"])
        self.generation = generation


async def _ready(messages: AsyncIterator[object]) -> None:
    async for message in messages:
        if isinstance(message, Ready):
            return
        if isinstance(message, JobEnded):
            raise Refused(message.reason, message.message)
    raise Refused("worker_died", "the worker died before it saw the weights")
