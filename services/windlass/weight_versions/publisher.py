"""Publishes versions: deltas mostly, and a full one now and then."""

import asyncio
from pathlib import Path

from windlass.weight_versions.manifest import BASE, Codec, WeightManifest
from windlass.weight_versions.media.folder import private_folder
from windlass.weight_versions.media.port import VersionMedium
from windlass.weight_versions.snapshot import WeightSnapshot
from windlass.weight_versions.tensors import Weights
from windlass.weight_versions.writing import DATA, DeltaTooLarge, VersionParent, write_version


class VersionPublisher:
    """The one writer of a medium; used by one task at a time.

    Every `full_every`-th version is a full one, so that a chain has an end, as is one whose delta
    would have more than `largest_delta` of the weights' bytes, and the first after `start`.
    """

    def __init__(
        self,
        medium: VersionMedium,
        scratch: Path,
        *,
        full_every: int = 20,
        largest_delta: float = 0.5,
        codec: Codec = "zstd",
        base_weights: str | None = None,
    ):
        """`scratch` has room for the weights once.

        `base_weights` are what `start` returned, for one that goes on from an earlier one's last.
        """
        self._medium = medium
        self._scratch = scratch
        self._full_every = full_every
        self._largest = largest_delta
        self._codec: Codec = codec
        self._snapshot: WeightSnapshot | None = None
        self._last: tuple[int, str] | None = None
        self._base = base_weights
        self._deltas = 0

    async def start(self, weights: Weights) -> str:
        """Takes the weights as they were loaded; returns their digest.

        Deltas begin with the next version. Without it, the first one is full and is the base.
        """
        with private_folder(self._scratch) as folder:
            manifest = await asyncio.to_thread(self._write, folder, 1, weights)
        self._base = manifest.weights
        self._last = (BASE, manifest.weights)
        return manifest.weights

    async def put(self, version: int, weights: Weights) -> WeightManifest:
        """Publishes weights that nobody changes meanwhile; raises WeightsRefused.

        After any failure the next one is full.
        """
        with self._medium.staged() as folder:
            manifest = await asyncio.to_thread(self._write, folder, version, weights)
            await self._medium.publish(folder, version)
        self._deltas = 0 if manifest.parent is None else self._deltas + 1
        self._base = manifest.base_weights
        self._last = (version, manifest.weights)
        return manifest

    def close(self) -> None:
        """Frees the copy of the last version."""
        if self._snapshot:
            self._snapshot.close()

    def _write(self, folder: Path, version: int, weights: Weights) -> WeightManifest:
        parent = self._parent(weights)
        # Until it is published, nobody has what the snapshot holds.
        self._last = None
        if parent is not None:
            try:
                return self._written(folder, version, weights, parent)
            except DeltaTooLarge:
                (folder / DATA).unlink()
        return self._written(folder, version, weights, None)

    def _written(
        self, folder: Path, version: int, weights: Weights, parent: VersionParent | None
    ) -> WeightManifest:
        if self._snapshot is None or not self._snapshot.fits(weights):
            self.close()
            self._snapshot = WeightSnapshot(self._scratch, weights)
        return write_version(
            folder,
            version,
            weights,
            self._snapshot,
            base_weights=self._base,
            parent=parent,
            codec=self._codec,
        )

    def _parent(self, weights: Weights) -> VersionParent | None:
        if self._last is None or self._snapshot is None or not self._snapshot.fits(weights):
            return None
        if self._deltas + 1 >= self._full_every:
            return None
        version, digest = self._last
        bound = int(self._largest * self._snapshot.size) if self._codec == "zstd" else 2**63
        return VersionParent(version=version, weights=digest, bound=bound)
