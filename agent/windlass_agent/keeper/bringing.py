"""The weights that a keeper brings, by the URLs of its agent's newest order."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Protocol

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.download import DownloadError, Renewed, versions_of
from windlass_agent.machine.program_output import one_line

log = telemetry.logger("keeper")
MESSAGE_LENGTH = 2000
LOOK_SECONDS = 5.0

Become = Callable[["clusters_pb2.Phase.ValueType", str, str], None]


class WeightFolder(Protocol):
    """A place that weights are brought to."""

    async def fetch(
        self,
        version_id: str,
        files: list[models_pb2.FileUrl],
        *,
        renewed: Renewed | None = None,
    ) -> Path:
        """The folder of a version; raises DownloadError."""

    def draft_bytes(self, version_id: str) -> int:
        """Bytes that have come of a version that is not there yet."""


async def bring_weights(
    folder: WeightFolder, order: Callable[[], clusters_pb2.EngineWorkload], become: Become
) -> None:
    """Returns once the versions of an order are there, however often it takes."""
    become(clusters_pb2.PHASE_STARTING, "Downloading", "")
    for version_id, known in versions_of(order()).items():
        await _bring(folder, version_id, partial(_newest, order, version_id, known), become)


def _newest(
    order: Callable[[], clusters_pb2.EngineWorkload],
    version_id: str,
    known: Iterable[models_pb2.FileUrl],
) -> Iterable[models_pb2.FileUrl]:
    # A newer order may be that of a pod which takes this one's place.
    return versions_of(order()).get(version_id, known)


async def _bring(
    folder: WeightFolder,
    version_id: str,
    files: Renewed,
    become: Become,
) -> None:
    pauses, progress = Backoff(shortest=1.0, longest=30.0), _Progress(folder)
    while True:
        watch = asyncio.create_task(progress.watch(version_id, become))
        try:
            await folder.fetch(version_id, list(files()), renewed=files)
        except DownloadError as error:
            message = one_line(str(error), characters=MESSAGE_LENGTH)
            log.warning("weights_not_fetched", message=message)
            progress.has_failed = True
            become(clusters_pb2.PHASE_FAILED, "DownloadFailed", message)
        else:
            return
        finally:
            watch.cancel()
        await pauses.pause()


class _Progress:
    """Keeps a failure that no try has overcome, so that the agent's patience can run out."""

    def __init__(self, folder: WeightFolder):
        self._folder = folder
        self._most = 0
        self.has_failed = False

    async def watch(self, version_id: str, become: Become) -> None:
        """Takes a failure back once more has come than ever before; runs until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            there = await asyncio.to_thread(self._folder.draft_bytes, version_id)
            if there > self._most and self.has_failed:
                self.has_failed = False
                become(clusters_pb2.PHASE_STARTING, "Downloading", "")
            self._most = max(self._most, there)
