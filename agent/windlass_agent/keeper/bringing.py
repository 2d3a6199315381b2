"""The weights that a keeper brings, by the URLs of its agent's newest order."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.download import DownloadError, Renewed
from windlass_agent.machine.program_output import one_line

log = telemetry.logger("keeper")
MESSAGE_LENGTH = 2000

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


async def bring_weights(
    folder: WeightFolder, order: Callable[[], clusters_pb2.EngineWorkload], become: Become
) -> str:
    """Returns the id of the version once it is there, however often it takes."""
    pauses = Backoff(shortest=1.0, longest=30.0)
    while True:
        spec = order()
        become(clusters_pb2.PHASE_STARTING, "Downloading", "")
        try:
            await folder.fetch(
                spec.model_version_id,
                list(spec.model_files),
                renewed=lambda: order().model_files,
            )
        except DownloadError as error:
            message = one_line(str(error), characters=MESSAGE_LENGTH)
            log.warning("weights_not_fetched", message=message)
            become(clusters_pb2.PHASE_FAILED, "DownloadFailed", message)
            await pauses.pause()
            continue
        return spec.model_version_id
