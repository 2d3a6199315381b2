"""Bounds of a connection's resources and time."""

import resource
from dataclasses import dataclass

from windlass.core.config import HttpSection

# Database, engines, files and pipes of the same process.
RESERVED_FILES = 512
MAX_CONNECTIONS = 20_000
# More than this no process of ours can use; some systems say "infinite".
MAX_FILES = 1 << 20


@dataclass(frozen=True, slots=True)
class ListenerBounds:
    """Limits of connections and requests."""

    connections: int
    per_address: int
    head_bytes: int
    target_bytes: int
    headers: int
    head_seconds: float
    body_seconds: float
    body_rate: int
    write_seconds: float
    answer_rate: int

    @classmethod
    def of(cls, settings: HttpSection) -> "ListenerBounds":
        """Bounds from the settings; the default of connections follows the open-file limit."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        room = max(64, min(MAX_CONNECTIONS, files - RESERVED_FILES, files * 3 // 4))
        return cls(
            connections=min(settings.max_connections or room, room),
            per_address=settings.max_connections_per_address,
            head_bytes=settings.max_head_bytes,
            target_bytes=settings.max_target_bytes,
            headers=settings.max_headers,
            head_seconds=settings.head_seconds,
            body_seconds=settings.body_seconds,
            body_rate=settings.body_bytes_per_second,
            write_seconds=settings.write_seconds,
            answer_rate=settings.answer_bytes_per_second,
        )


def raise_file_limit() -> int:
    """Raises the number of files that this process may open to its hard limit; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
