"""The versions that an engine reads: its model, and the one that guesses tokens for it."""

from collections.abc import Iterable, Mapping

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2


def versions_of(spec: pb.EngineWorkload) -> Mapping[str, Iterable[models_pb2.FileUrl]]:
    """The files of each version by its id, the model's first."""
    found = {spec.model_version_id: spec.model_files}
    if spec.draft_version_id:
        found[spec.draft_version_id] = spec.draft_files
    return found


def bytes_of(spec: pb.EngineWorkload) -> int:
    """Bytes of the files of all versions."""
    return sum(file.bytes for files in versions_of(spec).values() for file in files)


def prefetched(spec: pb.PrefetchWorkload) -> pb.EngineWorkload:
    """The engine for which a prefetch brings files, without what it needs beside them."""
    return pb.EngineWorkload(
        model=spec.model,
        model_version_id=spec.model_version_id,
        model_files=spec.files,
        draft_version_id=spec.draft_version_id,
        draft_files=spec.draft_files,
    )
