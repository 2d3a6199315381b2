"""The version of the weights that vLLM answers with, and its change while it runs."""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any, Protocol

from windlass.inference_api.errors import ApiError
from windlass.weight_versions import (
    BASE,
    CheckedChain,
    FolderMedium,
    HeldVersion,
    WeightsRefused,
    WeightsTorn,
    checked_chain,
    digest_of,
)
from windlass.weight_versions.media.shared_memory import is_segment
from windlass_agent.engines.versioned.gate import VersionGate, weights_in_use
from windlass_agent.engines.vllm.shadow import ShadowWeights

# That vLLM takes to let go of requests whose clients have left.
SETTLE_SECONDS = 30.0
_log = logging.getLogger(__name__)


class EngineCalls(Protocol):
    """The part of vLLM's EngineClient that an update needs."""

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        """Waits for what runs, and holds what comes."""

    async def resume_generation(self) -> None:
        """Ends a pause."""

    async def collective_rpc(self, method: str, *, kwargs: dict[str, Any]) -> Any:
        """Calls a method of each worker."""

    async def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forgets keys and values; False while a request has some."""

    async def update_weight_version(self, new_version: str) -> None:
        """Names the weights in the answers to token ids."""


class VllmVersions:
    """The version of the base weights that answers, and its change; used on the loop alone."""

    def __init__(self, engine: EngineCalls, model: Path, scratch: Path):
        """`model` is the folder that vLLM has loaded; a copy of its weights goes to `scratch`."""
        self._engine = engine
        self._model = model
        self._scratch = scratch
        self._shadow: ShadowWeights | None = None
        self._held: HeldVersion | None = None
        self._updating = asyncio.Lock()
        self.gate = VersionGate()

    @property
    def version(self) -> int:
        """The version of the weights; 0 for those of the model's folder."""
        return self._held.version if self._held else BASE

    async def update(self, version: int, root: Path, wait_seconds: float) -> None:
        """Puts a version of the medium at `root` in place; it answers on as before on any error.

        Raises ApiError 400 and 404 for a version that is refused, 503 where requests do not end.
        """
        async with self._updating:
            try:
                await self._update(version, root, wait_seconds)
            except WeightsRefused as refusal:
                status = 404 if refusal.reason == "unknown_version" else 400
                raise ApiError(
                    str(refusal), status=status, param="version", code=refusal.reason
                ) from refusal

    def close(self) -> None:
        """Removes the copy of the weights."""
        if self._shadow is not None:
            self._shadow.close()

    async def _update(self, version: int, root: Path, wait_seconds: float) -> None:
        shadow, held = await self._known()
        medium = FolderMedium(root, None if is_segment(root) else self._scratch)
        async with (
            checked_chain(medium, version, held, shadow.tensors, self._scratch) as (chain, found),
            self.gate.update(wait_seconds),
        ):
            if found.weights == held.weights:
                # A name alone, as of a version that changed nothing.
                await self._engine.update_weight_version(str(version))
            else:
                await self._replace(chain, found, shadow.folder)
            self._held = found

    async def _known(self) -> tuple[ShadowWeights, HeldVersion]:
        if self._shadow is None:
            self._shadow = await asyncio.to_thread(ShadowWeights, self._model, self._scratch)
        if self._held is None:
            digest = await asyncio.to_thread(digest_of, self._shadow.tensors)
            self._held = HeldVersion(BASE, digest, digest)
        return self._shadow, self._held

    async def _replace(self, chain: CheckedChain, found: HeldVersion, folder: Path) -> None:
        loop = asyncio.get_running_loop()

        def load() -> None:
            asyncio.run_coroutine_threadsafe(self._load(folder, found.version), loop).result()

        await self._pause()
        try:
            await asyncio.to_thread(chain.apply, load)
        except BaseException as error:
            await self._load_again(folder, error)
            raise
        finally:
            await self._engine.resume_generation()

    async def _pause(self) -> None:
        """Waits for requests whose clients have left; raises ApiError 503 where they do not end."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._engine.pause_generation(mode="wait", clear_cache=True)
        except TimeoutError as error:
            await self._engine.resume_generation()
            raise weights_in_use() from error

    async def _load(self, folder: Path, version: int) -> None:
        """Has vLLM read the copy as it read the model, and forget what it computed before.

        Raises what vLLM does, and ApiError 503 where keys and values of older weights are in use.
        """
        await self._engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
        if not await self._engine.reset_prefix_cache(reset_connector=True):
            raise weights_in_use()
        await self._engine.update_weight_version(str(version))

    async def _load_again(self, folder: Path, error: BaseException) -> None:
        """Has vLLM read the old bits, which the copy has again; ends the process where it cannot.

        No exception would do: whoever holds the gate would open it.
        """
        try:
            if isinstance(error, WeightsTorn):
                raise error
            await self._load(folder, self.version)
        except BaseException:
            _log.critical("weights_torn", exc_info=True)
            os.kill(os.getpid(), signal.SIGKILL)
