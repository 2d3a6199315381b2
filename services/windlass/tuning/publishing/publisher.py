"""Writes sampler checkpoints of full-parameter runs as versions of weights."""

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from windlass.core import telemetry
from windlass.core.killpoints import reach
from windlass.core.objects import ObjectNotFound
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.publishing.media import PublishingMedia
from windlass.tuning.publishing.store import RENEW_SECONDS, Row, VersionStore, WrittenVersion
from windlass.tuning.storage.checkpoints import WeightsStore, prefix_of
from windlass.weight_versions import (
    VersionMedium,
    VersionPublisher,
    WeightManifest,
    WeightsRefused,
)
from windlass.weight_versions.safetensors import mapped_weights

log = telemetry.logger("tuning")
# Runs whose last weights are kept in files, so that the next version is a delta.
KEPT_RUNS = 8
_MESSAGE_LENGTH = 500


class RunGone(Exception):
    """The checkpoint of a version is there no more."""


@dataclass
class _VersionWriter:
    """The writer of one run's versions, and the last one that it wrote."""

    medium: VersionMedium
    publisher: VersionPublisher
    last: int

    async def close(self) -> None:
        self.publisher.close()
        await self.medium.close()


class WeightPublisher:
    """Brings versions in line with checkpoints; each is a row before it is written."""

    def __init__(
        self,
        store: VersionStore,
        checkpoints: WeightsStore,
        folders: CheckpointFolders,
        media: PublishingMedia,
        models: Mapping[str, Path],
        scratch: Path,
        *,
        full_every: int,
        changed: Callable[[], None],
    ):
        """`models` has the folders of base models, by name."""
        self._store = store
        self._checkpoints = checkpoints
        self._folders = folders
        self._media = media
        self._models = models
        self._scratch = scratch
        self._full_every = full_every
        self._changed = changed
        self._writers: OrderedDict[str, _VersionWriter] = OrderedDict()

    async def once(self) -> bool:
        """Makes a round; returns whether there may be more to do at once."""
        await self._clean()
        if await self._store.begin_newest():
            reach("versions.begun")
        token, row = await self._store.claim()
        if row is None:
            return False
        try:
            async with self._renewed(row, token):
                facts = await self._write(row)
        except RunGone:
            await self._store.drop(row.id, token)
        except WeightsRefused as refusal:
            await self._close(row.run_id)
            if refusal.reason == "medium_in_use":
                # Another server has the segment.
                await self._store.postpone(row.id, token, str(refusal)[:_MESSAGE_LENGTH])
                return False
            await self._store.refuse(row.id, token, str(refusal)[:_MESSAGE_LENGTH])
        except Exception as error:
            await self._close(row.run_id)
            said = f"The newest weights could not be published: {type(error).__name__}."
            await self._store.postpone(row.id, token, said)
            raise
        else:
            reach("versions.stored")
            await self._store.written(row.id, token, facts)
            reach("versions.written")
        self._changed()
        return True

    async def close(self) -> None:
        """Frees the copies of last weights; segments go with them."""
        for run_id in tuple(self._writers):
            await self._close(run_id)

    async def _write(self, row: Row) -> WrittenVersion:
        checkpoint = await self._checkpoints.whole(row.checkpoint_id)
        if checkpoint is None:
            raise RunGone
        writer = await self._writer(row, checkpoint.base_model)
        try:
            prefix = prefix_of(row.project_id, row.checkpoint_id)
            async with self._folders.read(prefix) as folder:
                weights = await asyncio.to_thread(mapped_weights, folder)
                # Nobody was told of what a process that was killed left at this number.
                await writer.medium.remove(row.version)
                manifest = await writer.publisher.put(row.version, weights)
        except ObjectNotFound as error:
            raise RunGone from error
        writer.last = row.version
        return _facts(manifest)

    async def _writer(self, row: Row, base_model: str) -> _VersionWriter:
        """The run's writer, which knows its last version; else one whose first one is whole."""
        last = await self._store.last_ready(row.run_id)
        found = self._writers.get(row.run_id)
        if found is not None and found.last == (last.version if last else 0):
            self._writers.move_to_end(row.run_id)
            return found
        await self._close(row.run_id)
        medium = self._media.open(row.project_id, row.run_id)
        if self._media.begins_empty:
            await self._store.forget(row.run_id)
        publisher = VersionPublisher(
            medium,
            self._scratch,
            full_every=self._full_every,
            base_weights=last.base_weights if last else None,
        )
        made = _VersionWriter(medium, publisher, last.version if last else 0)
        self._writers[row.run_id] = made
        if last is None:
            if (folder := self._models.get(base_model)) is None:
                raise WeightsRefused("wrong_base", f"{base_model} is no base model here any more.")
            await publisher.start(await asyncio.to_thread(mapped_weights, folder))
        while len(self._writers) > KEPT_RUNS:
            await self._close(next(iter(self._writers)))
        return made

    async def _close(self, run_id: str) -> None:
        if (writer := self._writers.pop(run_id, None)) is not None:
            await writer.close()

    async def _clean(self) -> None:
        """Removes what nobody may follow any more, and what newer versions do without."""
        runs = await self._store.kept_runs()
        kept = [row.run_id for row in runs]
        for erased in self._writers.keys() - kept:
            await self._close(erased)
        await self._media.sweep(kept)
        lost = self._media.lost(kept)
        for row in runs:
            if row.run_id in lost:
                await self._store.forget(row.run_id)
                await self._close(row.run_id)
            elif not row.offered:
                await self._close(row.run_id)
                await self._media.remove(row.project_id, row.run_id)
                # What is forgotten first would lie there for ever if this process ended here.
                reach("versions.taken_back")
                await self._store.forget(row.run_id)
            elif (writer := self._writers.get(row.run_id)) is not None:
                for old in await self._store.superseded(row.run_id):
                    await writer.medium.remove(old.version)
                    reach("versions.removed")
                    await self._store.forget(row.run_id, old.version)

    @asynccontextmanager
    async def _renewed(self, row: Row, token: str) -> AsyncIterator[None]:
        """Keeps the row's lease for the length of the block, however large the weights are."""

        async def renew() -> None:
            while await self._store.renew(row.id, token):  # noqa: ASYNC110
                await asyncio.sleep(RENEW_SECONDS)

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _facts(manifest: WeightManifest) -> WrittenVersion:
    content = manifest.content()
    return WrittenVersion(
        parent=manifest.parent,
        base_weights=manifest.base_weights,
        size=manifest.size,
        sha256=manifest.sha256,
        manifest_size=len(content),
        manifest_sha256=hashlib.sha256(content).hexdigest(),
    )
