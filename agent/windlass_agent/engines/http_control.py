"""Control of an engine that has vLLM's control routes."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.load import PAGE_BYTES, EngineLoad, LoadNames
from windlass_agent.engines.port import (
    RERANK,
    CapabilityMissing,
    EngineCapabilities,
    EngineError,
)

# Loading a large adapter or copying weights may take this long; a probe may not.
CONTROL_SECONDS = 300.0
PROBE_SECONDS = 5.0
# Requests of one token, by the task of the engine.
_WARM: dict[str, tuple[str, dict[str, Any]]] = {
    "embed": ("/v1/embeddings", {"input": "a"}),
    "score": (RERANK, {"query": "a", "documents": ["a"]}),
}
_WARM_GENERATION = ("/v1/completions", {"prompt": "a", "max_tokens": 1})
# What an engine says that works: that this was no request for it, or that it is busy.
_ANSWERED = frozenset({*range(400, 500), HTTPStatus.SERVICE_UNAVAILABLE})


class HttpControl:
    """An `EngineControl` over vLLM's routes; for engines that declare what they have of them."""

    def __init__(
        self, name: str, capabilities: EngineCapabilities, endpoint: str, load_names: LoadNames
    ):
        """`load_names` are those of its metrics."""
        self._load_names = load_names
        self._name = name
        self._capabilities = capabilities
        target = parse_endpoint(endpoint)
        connector = aiohttp.UnixConnector(path=str(target.uds)) if target.uds else None
        self._session = aiohttp.ClientSession(target.base_url, connector=connector)

    async def ready(self) -> bool:
        """Returns True if it answers and has its model loaded; never raises."""
        try:
            await self._call("GET", "/health", seconds=PROBE_SECONDS)
        except EngineError:
            return False
        return True

    async def served(self) -> EngineCapabilities:
        """Returns its capabilities with the context length and the version that it reports."""
        updates, version = await self._updates()
        found = replace(self._capabilities, weight_updates=updates, weight_version=version)
        for model in await self._models():
            if not model.get("parent"):
                return replace(found, context_length=int(model.get("max_model_len") or 0))
        return found

    async def warm(self, model: str, task: str) -> None:
        """Has a small request answered; raises EngineError for an engine that fails at it."""
        path, body = _WARM.get(task, _WARM_GENERATION)
        try:
            await self._call("POST", path, {"model": model, **body})
        except EngineError as error:
            if error.status not in _ANSWERED:
                raise

    async def open_requests(self) -> int:
        """Number of requests that an end of the engine would cut."""
        return int((await self._call("GET", "/load", seconds=PROBE_SECONDS))["server_load"])

    async def load(self) -> EngineLoad:
        """Returns its requests now, and its tokens since its start."""
        timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
        try:
            async with self._session.get("/metrics", timeout=timeout) as response:
                response.raise_for_status()
                page = await _bounded(response)
            return await asyncio.to_thread(self._load_names.read, page)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise EngineError(f"{self._name} told no metrics: {error!r}") from error

    async def load_adapter(self, adapter_id: str, path: Path) -> None:
        """Serves the adapter in `path` as the model `adapter_id`; one that is loaded stays."""
        self._require("adapters", lambda own: own.adapters)
        body = {"lora_name": adapter_id, "lora_path": str(path)}
        try:
            await self._call("POST", "/v1/load_lora_adapter", body)
        except EngineError as error:
            duplicate = error.status == HTTPStatus.BAD_REQUEST
            if not (duplicate and adapter_id in await self.loaded_adapters()):
                raise

    async def unload_adapter(self, adapter_id: str) -> None:
        """Stops serving the adapter; one that is not loaded is no error."""
        self._require("adapters", lambda own: own.adapters)
        try:
            await self._call("POST", "/v1/unload_lora_adapter", {"lora_name": adapter_id})
        except EngineError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def loaded_adapters(self) -> dict[str, str]:
        """The adapters that answer now: by each id the folder that it was loaded from."""
        self._require("adapters", lambda own: own.adapters)
        adapters = [model for model in await self._models() if model.get("parent")]
        return {str(one["id"]): str(one.get("root") or "") for one in adapters}

    async def update_weights(self, version: int, path: Path) -> None:
        """Puts a version of the medium at `path` in place; requests before it finish on the old."""
        self._require("weight_updates", lambda own: own.weight_updates)
        await self._call("POST", "/update_weights", {"version": version, "path": str(path)})

    async def asleep(self) -> bool:
        """Returns True from the beginning of a sleep until it has woken."""
        self._require("sleep", lambda own: own.sleep)
        found = await self._call("GET", "/is_sleeping", seconds=PROBE_SECONDS)
        return bool(found["is_sleeping"])

    async def sleep(self) -> None:
        """Ends its open requests and gives its device's memory back; one that sleeps sleeps on.

        Returns once that is done, also where an earlier call began it.
        """
        self._require("sleep", lambda own: own.sleep)
        # vLLM's own way would be to cut what is open.
        await self._call("POST", "/sleep?level=1&mode=wait")

    async def wake(self) -> None:
        """Takes the memory again, so that requests are answered; one that is awake stays so."""
        self._require("sleep", lambda own: own.sleep)
        # The weights may be large; the caller knows how long to wait.
        await self._call("POST", "/wake_up", seconds=None)
        if await self.asleep():
            raise EngineError(f"{self._name} sleeps on")

    async def weight_version(self) -> int:
        """The version of the base weights that answer now."""
        self._require("weight_version", lambda own: own.weight_updates)
        return int((await self._call("GET", "/weight_version"))["version"])

    async def _updates(self) -> tuple[bool, int]:
        """Returns whether it takes versions of weights, and the one that answers.

        One that an agent of an earlier release has started has no such route.
        """
        if not self._capabilities.weight_updates:
            return False, 0
        try:
            return True, await self.weight_version()
        except EngineError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False, 0

    async def close(self) -> None:
        """Releases the connection; the engine runs on."""
        await self._session.close()

    def _require(self, capability: str, has: Callable[[EngineCapabilities], bool]) -> None:
        if not has(self._capabilities):
            raise CapabilityMissing(self._name, capability)

    async def _models(self) -> list[dict[str, Any]]:
        models: list[dict[str, Any]] = (await self._call("GET", "/v1/models"))["data"]
        return models

    async def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        seconds: float | None = CONTROL_SECONDS,
    ) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(method, path, json=body, timeout=timeout) as response:
                is_json = response.content_type == "application/json"
                answer = await response.json() if is_json else {"message": await response.text()}
                if response.ok:
                    return answer if isinstance(answer, dict) else {}
                raise EngineError(_message(answer), status=response.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineError(f"{self._name} did not answer: {error!r}") from error


async def _bounded(response: aiohttp.ClientResponse) -> str:
    page = bytearray()
    async for part in response.content.iter_any():
        page += part
        if len(page) > PAGE_BYTES:
            raise ValueError(f"more than {PAGE_BYTES} bytes")
    return page.decode(errors="replace")


def _message(answer: Any) -> str:
    detail = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(detail.get("message", detail)) if isinstance(detail, dict) else str(detail)
