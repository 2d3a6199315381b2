"""Versions of models on a disk: a cache of one agent's, or a store that several pods share.

Imports folders, memory and the kernel.
"""

from windlass_agent.download.cache import ModelCache
from windlass_agent.download.local_copy import LocalObjects, no_objects
from windlass_agent.download.shared_store import SharedStore
from windlass_agent.download.transfer import (
    DownloadError,
    Renewed,
    fetch_versions,
    said_of_store,
)
from windlass_agent.download.versions import BroughtVersions, bytes_of, prefetched, versions_of

__all__ = [
    "BroughtVersions",
    "DownloadError",
    "LocalObjects",
    "ModelCache",
    "Renewed",
    "SharedStore",
    "bytes_of",
    "fetch_versions",
    "no_objects",
    "prefetched",
    "said_of_store",
    "versions_of",
]
