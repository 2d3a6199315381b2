"""What operators read of a process: its health, its metrics, and pages for them."""

from windlass.core.operations.exposition import Exposition
from windlass.core.operations.listener import Operations

__all__ = ["Exposition", "Operations"]
