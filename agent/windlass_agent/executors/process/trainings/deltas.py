"""Files of a checkpoint as deltas to those of the model that the engine loaded."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass.weight_versions import WeightsRefused
from windlass.weight_versions.file_delta import write_delta
from windlass.weight_versions.writing import DeltaTooLarge
from windlass_agent.executors.process.trainings.checkpoint_folder import CheckpointFolder
from windlass_agent.folders import private_folder

log = telemetry.logger("trainings")
# Of a file's bytes: what is larger goes up whole.
_LARGEST = 0.9


@dataclass(frozen=True)
class MadeDelta:
    """A delta in a file, and the SHA-256 of the file of weights that it makes of its parent."""

    path: Path
    size: int
    sha256: bytes


@asynccontextmanager
async def made_deltas(
    folder: CheckpointFolder, model: Path, files: Iterable[models_pb2.FileUrl], scratch: Path
) -> AsyncIterator[Mapping[str, MadeDelta]]:
    """Deltas to a model's `files` by their names, in `scratch`, which goes at the end.

    A file has none where its delta is hardly smaller, or the model's is not what its digest says.
    """
    try:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        private_folder(scratch)
        found = {}
        for number, file in enumerate(files):
            made = await asyncio.to_thread(_made, folder, model, file, scratch / str(number))
            if made is not None:
                found[file.path] = made
        yield found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _made(
    folder: CheckpointFolder, model: Path, file: models_pb2.FileUrl, target: Path
) -> MadeDelta | None:
    try:
        with (
            os.fdopen(folder.open(file), "rb") as child,
            (model / file.path).open("rb") as parent,
            target.open("xb") as out,
        ):
            bound = int(_LARGEST * file.bytes)
            delta = write_delta(parent, child, out, size=file.bytes, bound=bound)
    except (DeltaTooLarge, WeightsRefused, OSError) as error:
        log.info("delta_not_made", file=file.path, error=repr(error))
        target.unlink(missing_ok=True)
        return None
    if delta.parent != file.sha256:
        log.warning("model_file_differs", file=file.path)
        target.unlink()
        return None
    return MadeDelta(target, delta.size, delta.child)
