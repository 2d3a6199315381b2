"""Pages for the operators of a process: its health, its metrics, and an index of them.

May import telemetry and `windlass.metrics` alone.
"""

from windlass.core.operations.exposition import Exposition
from windlass.core.operations.listener import NOT_READY, Operations, status_of

__all__ = ["NOT_READY", "Exposition", "Operations", "status_of"]
