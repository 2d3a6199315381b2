"""One engine that samples: it has the base model, and loads adapters by their folders."""

import asyncio
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.inference_api.routes import GENERATE, WEIGHT_VERSION
from windlass.tuning.samplers.adapters import PREFIX, AdapterSlots
from windlass.tuning.samplers.wire import asked, asked_of_prompt, parts, samples_of
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.records import (
    FailureCategory,
    OperationFailed,
    SampleRequest,
    Samples,
)

log = telemetry.logger("tuning.samplers")
# An adapter is of the base model as it was loaded.
_BASE_VERSION = "0"
SAMPLE_SECONDS = 1800.0
LOAD_SECONDS = 300.0
ANSWER_BYTES = 256 * 2**20
# Continuations of one request to the engine, of which vLLM takes no more than it computes at once,
# and such requests at once.
CHOICES = 8
AT_ONCE = 32
_UNIX = "unix://"


class EngineSampler:
    """Continues prompts at an engine; the adapters of pinned samplers never change there."""

    def __init__(self, model: str, address: str, places: int):
        """`address` is `unix:///path` or an URL; the engine serves `model` under this name."""
        self._model = model
        self._address = address
        self._adapters = AdapterSlots(places, self._load, self._unload)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._alone = asyncio.Lock()
        self._is_cleared = False
        self._made: aiohttp.ClientSession | None = None

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt; raises TrainerLost where the engine does not answer as it should."""
        model = self._model
        try:
            async with AsyncExitStack() as stack:
                if request.adapter is not None:
                    model = await stack.enter_async_context(self._adapters.loaded(request.adapter))
                prompt = asked_of_prompt(request, model)
                told = await self._told(prompt) if prompt else None
                return samples_of(told, await self._continued(request, model), request)
        except _RefusedByEngine as refusal:
            if refusal.status == HTTPStatus.NOT_FOUND:
                # It was started anew, without adapters.
                self._lost(model)
                raise TrainerLost(str(refusal)) from refusal
            return refusal.outcome()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._lost()
            raise TrainerLost(
                f"the engine of {self._model!r} does not answer: {error!r}"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise TrainerLost(f"the engine answers {error!r}") from error

    async def close(self) -> None:
        """Releases the connections."""
        if self._made is not None:
            await self._made.close()

    async def _told(self, body: dict[str, Any]) -> dict[str, Any]:
        """Returns what the engine says of a prompt, while nothing else is asked of it.

        vLLM 0.32 ends when it tells a prompt's log-probabilities by an adapter beside others.
        """
        async with self._alone, AsyncExitStack() as all_places:
            for _ in range(AT_ONCE):
                await all_places.enter_async_context(self._places)
            return await self._patiently(body)

    async def _continued(self, request: SampleRequest, model: str) -> list[dict[str, Any]]:
        bodies = [asked(request, model, *part) for part in parts(request, CHOICES)]
        work = [asyncio.create_task(self._generated(body)) for body in bodies]
        try:
            return await asyncio.gather(*work)
        finally:
            # The first that fails ends the others.
            for task in work:
                task.cancel()

    async def _generated(self, body: dict[str, Any]) -> dict[str, Any]:
        async with self._places:
            return await self._patiently(body)

    async def _patiently(self, body: dict[str, Any]) -> dict[str, Any]:
        """An answer, once the engine is not too busy for it."""
        async with asyncio.timeout(SAMPLE_SECONDS):
            backoff = Backoff()
            while True:
                try:
                    return await self._call(GENERATE, body, SAMPLE_SECONDS)
                except _RefusedByEngine as refusal:
                    if refusal.status != HTTPStatus.SERVICE_UNAVAILABLE:
                        raise
                await backoff.pause()

    async def _load(self, name: str, folder: Path) -> None:
        if not self._is_cleared:
            # What is lost meanwhile is to be cleared again.
            self._is_cleared = True
            try:
                await self._clear()
            except BaseException:
                self._is_cleared = False
                raise
        body = {"lora_name": name, "lora_path": str(folder)}
        await self._call("/v1/load_lora_adapter", body, LOAD_SECONDS)

    def _lost(self, name: str = "") -> None:
        """Takes nothing for loaded that nobody uses; an engine that lives has it all the same."""
        self._adapters.lost(name)
        self._is_cleared = False

    async def _clear(self) -> None:
        """Unloads what an earlier life of this process, or a broken connection, has left."""
        timeout = aiohttp.ClientTimeout(total=LOAD_SECONDS)
        async with self._session().get("/v1/models", timeout=timeout) as response:
            models = orjson.loads(await _bounded(response))["data"]
        for one in models:
            name = one["id"]
            is_ours = one.get("parent") and name.startswith(PREFIX)
            if is_ours and not self._adapters.holds(name):
                await self._unload(name)

    async def _unload(self, name: str) -> None:
        try:
            await self._call("/v1/unload_lora_adapter", {"lora_name": name}, LOAD_SECONDS)
        except _RefusedByEngine as refusal:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise

    async def _call(self, path: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The answer's JSON, empty for what is none; raises _RefusedByEngine."""
        headers = {"content-type": "application/json", WEIGHT_VERSION: _BASE_VERSION}
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with self._session().post(
            path, data=orjson.dumps(body), headers=headers, timeout=timeout
        ) as response:
            content = await _bounded(response)
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise _RefusedByEngine(response.status, content)
            if path != GENERATE:
                return {}
            if response.headers.get(WEIGHT_VERSION) != _BASE_VERSION:
                raise ValueError("with weights of another version than the adapter's base")
            found: dict[str, Any] = orjson.loads(content)
            return found

    def _session(self) -> aiohttp.ClientSession:
        if self._made is None:
            if self._address.startswith(_UNIX):
                connector = aiohttp.UnixConnector(path=self._address.removeprefix(_UNIX))
                self._made = aiohttp.ClientSession("http://engine", connector=connector)
            else:
                self._made = aiohttp.ClientSession(self._address)
        return self._made


class _RefusedByEngine(Exception):
    def __init__(self, status: int, content: bytes):
        super().__init__(f"{status}: {content[:500]!r}")
        self.status = status

    def outcome(self) -> OperationFailed:
        """The failure as the client reads it; what the engine said is for the operator's log."""
        log.error("sampler_refused", error=str(self))
        if self.status == HTTPStatus.CONFLICT:
            return OperationFailed(
                "The sampler's engine has weights of another version.",
                "weight_version_mismatch",
                FailureCategory.SERVER,
            )
        return OperationFailed(
            "The sampler's engine refused the request; the operator's log says why.",
            "sampler_refused",
            FailureCategory.SERVER,
        )


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > ANSWER_BYTES:
            raise ValueError("too much")
    return bytes(content)
