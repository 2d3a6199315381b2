"""Lists of an artifact's files, as messages of the contract and back."""

from windlass.api.models.v1 import models_pb2
from windlass.jobs.attempts.artifacts import Entry


def entries(manifest: models_pb2.Manifest) -> list[Entry]:
    """The files of a manifest."""
    return [Entry(entry.path, entry.bytes, entry.sha256) for entry in manifest.files]


def manifest(files: tuple[Entry, ...]) -> models_pb2.Manifest:
    """Inverse of `entries`."""
    return models_pb2.Manifest(
        files=[
            models_pb2.ManifestEntry(path=entry.path, bytes=entry.size, sha256=entry.sha256)
            for entry in files
        ]
    )
