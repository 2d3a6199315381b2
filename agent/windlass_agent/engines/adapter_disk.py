"""The disk that one engine has for its adapters, where nobody else's lie."""

import asyncio
from collections.abc import Iterable

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.download import DownloadError, ModelCache
from windlass_agent.engines.shelf import Shelf
from windlass_agent.memory import in_units


class AdapterDisk:
    """A bound on the bytes of adapters in a cache and a shelf that serve one engine alone.

    Whoever exceeds it loses the pod: an emptyDir that is fuller than its limit ends all of it.
    """

    def __init__(self, models: ModelCache, shelf: Shelf, most: int):
        self._models = models
        self._shelf = shelf
        self._most = most

    async def make_room(self, adapter: pb.AdapterSpec, wanted: Iterable[pb.AdapterSpec]) -> None:
        """Removes what is not wanted, so that an adapter can be fetched; raises DownloadError.

        The engine must have loaded nothing but what is `wanted`.
        """
        cached = self._models.versions()
        if adapter.version_id in cached:
            return
        # What the cache has lost would lie here a second time.
        await asyncio.to_thread(self._shelf.drop, adapter.version_id)
        shown = self._shelf.versions()
        sizes = {one.version_id: _size(one) for one in wanted}
        held = sum(size for version, size in sizes.items() if version in cached | shown)
        if held + _size(adapter) > self._most:
            raise _too_large(_size(adapter), held, self._most)
        await self._models.keep_only(sizes)
        left = shown - sizes.keys()
        if held + _size(adapter) + sum(map(self._shelf.size, left)) > self._most:
            for version in left:
                await asyncio.to_thread(self._shelf.drop, version)


def _size(adapter: pb.AdapterSpec) -> int:
    return sum(file.bytes for file in adapter.files)


def _too_large(needed: int, held: int, most: int) -> DownloadError:
    beside = f", of which others take {in_units(held)}" if held else ""
    return DownloadError(
        f"The adapter's {in_units(needed)} do not fit into the {in_units(most)} that the pod has "
        f"for adapters{beside}."
    )
