"""Owns what is kept on disk until another service has it: segments of lines, and their sending.

May import telemetry, ids and the backoff of `core`, `metrics` and gRPC.
"""

from windlass.core.spool.segments import (
    MEMORY_ROWS,
    SEGMENT_BYTES,
    DurableSpool,
    Spool,
    frame,
    read_lines,
)
from windlass.core.spool.shipping import SpoolShipper

__all__ = [
    "MEMORY_ROWS",
    "SEGMENT_BYTES",
    "DurableSpool",
    "Spool",
    "SpoolShipper",
    "frame",
    "read_lines",
]
