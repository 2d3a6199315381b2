"""Updates of the base weights in place, between requests."""

import asyncio
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch

from windlass.inference_api.errors import ApiError
from windlass.weight_versions import (
    BASE,
    CheckedChain,
    FolderMedium,
    HeldVersion,
    WeightsRefused,
    checked_chain,
    digest_of,
)
from windlass.weight_versions.media.shared_memory import is_segment
from windlass_agent.engines.builtin.generation.scheduler import SequenceScheduler
from windlass_agent.engines.builtin.generation.tensor_bytes import tensor_bytes
from windlass_agent.engines.versioned.gate import VersionGate, weights_in_use


class WeightVersions:
    """The version of the base weights that answers, and its change; used on the loop alone."""

    def __init__(self, parameters: Mapping[str, torch.Tensor], scheduler: SequenceScheduler):
        """`parameters` are those of the base model."""
        self._parameters = parameters
        self._scheduler = scheduler
        self._held: HeldVersion | None = None
        self._updating = asyncio.Lock()
        self.gate = VersionGate()

    @property
    def version(self) -> int:
        """The version of the weights; 0 for those of the model's folder."""
        return self._held.version if self._held else BASE

    def reset(self) -> None:
        """Notes that the weights were read from the model's folder again."""
        if self._held:
            base = self._held.base_weights
            self._held = HeldVersion(BASE, base, base)

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

    async def _update(self, version: int, root: Path, wait_seconds: float) -> None:
        # Made for each update: whoever has them has the memory, which sleep gives back.
        weights = tensor_bytes(self._parameters)
        if self._held is None:
            digest = await self._scheduler.call(partial(digest_of, weights))
            self._held = HeldVersion(BASE, digest, digest)
        scratch = Path(tempfile.gettempdir())
        medium = FolderMedium(root, None if is_segment(root) else scratch)
        async with (
            checked_chain(medium, version, self._held, weights, scratch) as (chain, found),
            self.gate.update(wait_seconds),
        ):
            await self._scheduler.call(partial(self._replace, chain))
            self._held = found

    def _replace(self, chain: CheckedChain) -> None:
        if self._scheduler.has_caches:
            raise weights_in_use()
        chain.apply()
