"""The versions that an engine reads, and those whose files were brought to a shared place."""

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


class BroughtVersions:
    """The `most` versions whose files this process saw brought to a place last.

    Others may remove them from there, so it is what is likely there.
    """

    def __init__(self, most: int):
        self._most = most
        # In the order of their last use.
        self._found: dict[str, None] = {}

    def note(self, version_id: str) -> None:
        """Notes that a version is there, and in use."""
        self._found.pop(version_id, None)
        self._found[version_id] = None
        if len(self._found) > self._most:
            del self._found[next(iter(self._found))]

    def latest(self) -> list[str]:
        """The versions, those used last first."""
        return list(reversed(self._found))
