"""Versions of models on a disk: a cache of one agent's, or a store that several pods share.

Imports folders, memory and the kernel.
"""

from windlass_agent.download.cache import ModelCache
from windlass_agent.download.shared_store import SharedStore
from windlass_agent.download.transfer import DownloadError, Renewed, said_of_store

__all__ = ["DownloadError", "ModelCache", "Renewed", "SharedStore", "said_of_store"]
