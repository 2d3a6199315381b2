"""A running engine that may be trained: its routes of training, which the plugin answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from windlass.core import telemetry
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.port import EngineError, TrainingAccess

log = telemetry.logger("trainings")
# What a busy engine takes to check millions of token ids.
_SECONDS = 120.0
# An event of a step, or the description of a job.
_LINE_BYTES = 256 * 1024
_ANSWER_BYTES = 2**20
Job = dict[str, Any]


class TrainingRefused(EngineError):
    """A request that the plugin refused, for a `reason` of its own."""

    def __init__(self, reason: str, message: str, status: int):
        super().__init__(message, status=status)
        self.reason = reason


@dataclass(frozen=True)
class TrainedEngine:
    """The way to train an engine; each call raises EngineError, TrainingRefused among them."""

    endpoint: str
    access: TrainingAccess

    async def train(self, body: bytes) -> Job:
        """Asks for a training; a repeat under its idempotency key answers the first."""
        return await self._ask("POST", "/train", body)

    async def checkpoint(self) -> Job:
        """Asks for a checkpoint of the weights as they will be."""
        return await self._ask("POST", "/checkpoint")

    async def job(self, name: str) -> Job:
        """A job as it stands."""
        return await self._ask("GET", f"/train/status/{name}")

    async def outputs(self, name: str, size: int) -> bytes:
        """Returns what a forward pass computed; raises EngineError for another number of bytes."""
        async with self._session() as session:
            try:
                timeout = aiohttp.ClientTimeout(total=_SECONDS)
                async with session.get(f"/train/outputs/{name}", timeout=timeout) as response:
                    await _require(response)
                    content = bytearray()
                    async for piece in response.content.iter_any():
                        content += piece
                        if len(content) > size:
                            break
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise EngineError(f"the engine does not answer: {error!r}") from error
        if len(content) != size:
            raise EngineError("the engine computed another number of outputs")
        return bytes(content)

    async def cancel(self, name: str) -> Job:
        """Asks a job to end at its next step."""
        return await self._ask("POST", f"/train/cancel/{name}")

    async def save(self, seconds: float) -> bool:
        """Has what the weights have learned written to the engine's folder.

        False where nothing was learned, or it was not written in so many seconds.
        """
        try:
            async with asyncio.timeout(seconds):
                status = await self._ask("GET", "/train/status")
                if not any(job.get("steps") for job in status["jobs"]):
                    return False
                name = str((await self.checkpoint())["job_id"])
                return [told async for told in self.follow(name)][-1].get("status") == "succeeded"
        except (EngineError, TimeoutError, LookupError, AttributeError, TypeError) as error:
            log.warning("engine_not_saved", error=repr(error))
            return False

    async def follow(self, name: str) -> AsyncIterator[Job]:
        """Yields the steps of a job that are known, those that come, and the job at its end."""
        async with self._session() as session:
            try:
                async with session.get(f"/train/steps/{name}") as response:
                    await _require(response)
                    while line := await response.content.readline():
                        if line.startswith(b"data: "):
                            yield _document(line.removeprefix(b"data: "))
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise EngineError(f"the engine tells no steps: {error!r}") from error

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> Job:
        async with self._session() as session:
            try:
                timeout = aiohttp.ClientTimeout(total=_SECONDS)
                async with session.request(method, path, data=body, timeout=timeout) as response:
                    await _require(response)
                    return _document(await response.content.read(_ANSWER_BYTES))
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise EngineError(f"the engine does not answer: {error!r}") from error

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        target = parse_endpoint(self.endpoint)
        connector = aiohttp.UnixConnector(path=str(target.uds)) if target.uds else None
        async with aiohttp.ClientSession(
            target.base_url,
            connector=connector,
            headers={"authorization": f"Bearer {self.access.key}"},
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_LINE_BYTES,
        ) as session:
            yield session


async def _require(response: aiohttp.ClientResponse) -> None:
    """Raises TrainingRefused for what is no success."""
    if response.ok:
        return
    content = await response.content.read(_LINE_BYTES)
    said = _document(content).get("error") if content.startswith(b"{") else None
    words = said if isinstance(said, dict) else {}
    message = str(words.get("message") or f"the engine answered with HTTP {response.status}")
    raise TrainingRefused(str(words.get("reason") or "refused"), message, response.status)


def _document(content: bytes) -> Job:
    found = json.loads(content)
    if not isinstance(found, dict):
        raise ValueError("no object of JSON")
    return found
