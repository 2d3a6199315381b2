"""A replica that does nothing but publish weights, until all is done or it is killed."""

import asyncio
import os
import sys
from pathlib import Path

from windlass.core.config import Settings
from windlass.core.config.tuning import PublishingSection
from windlass.core.db import Database
from windlass.core.objects import FilesystemStore
from windlass.core.quotas import Quotas
from windlass.tuning.blobs import Blobs
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.publishing.media import PublishingMedia
from windlass.tuning.publishing.publisher import WeightPublisher
from windlass.tuning.publishing.store import VersionStore
from windlass.tuning.storage.bounds import TuningBounds
from windlass.tuning.storage.checkpoints import WeightsStore

FULL_EVERY = 2


def objects_of(data: Path) -> FilesystemStore:
    return FilesystemStore(data / "objects", public_url="http://127.0.0.1", secret=b"s" * 32)


def media_of(objects: FilesystemStore, data: Path) -> PublishingMedia:
    return PublishingMedia(PublishingSection(medium="objects"), objects, data / "scratch")


async def main(url: str, data: Path) -> None:
    """Works until nothing is left."""
    database, objects = Database(url, pool_size=4), objects_of(data)
    bounds = TuningBounds(database, Quotas(Settings().quotas), session_seconds=60)
    publisher = WeightPublisher(
        VersionStore(database),
        WeightsStore(database, bounds),
        CheckpointFolders(data / "folders", Blobs(objects)),
        media_of(objects, data),
        {"toy": data / "base"},
        data / "scratch",
        full_every=FULL_EVERY,
        changed=lambda: None,
    )
    while await publisher.once():
        pass
    await publisher.close()
    await objects.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(os.environ["DATABASE"], Path(sys.argv[1])))
