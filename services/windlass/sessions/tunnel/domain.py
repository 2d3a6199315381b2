"""Connections, errors and limits of tunnels; pure."""

from dataclasses import dataclass
from typing import Protocol

from windlass.core.errors import AppError, InvalidArgument, ResourceExhausted, Unavailable
from windlass.core.ids import is_identifier, new_id


class TunnelConnection(Protocol):
    """A bidirectional byte stream to a target in a cluster, like a socket.

    One task may read while another writes; to cancel either ends the connection. `read`,
    `write` and `close_write` raise the AppError that ended it: `cluster_unreachable`,
    `target_refused`, or what `abort` was given.
    """

    # Whether its bytes go through another replica as well.
    relayed: bool

    async def read(self) -> bytes:
        """The next bytes, at most 256 KiB; b"" once the target has ended its side."""

    async def write(self, data: bytes | bytearray | memoryview, /) -> None:
        """Sends bytes; returns once the flow control window has space, which is back-pressure."""

    async def close_write(self) -> None:
        """Ends our side only; the target's remaining bytes can still be read."""

    async def close(self) -> None:
        """Ends our side and discards the target's bytes for up to two seconds; never raises."""

    def abort(self, error: AppError | None = None) -> None:
        """Ends the connection at once, pending reads and writes included; idempotent."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of open connections at a replica."""

    per_cluster: int = 1500
    in_all: int = 4000


def unreachable(why: str = "No agent of this cluster is connected.") -> Unavailable:
    """The error for a cluster that cannot be reached now; a retry may succeed."""
    return Unavailable(why, reason="cluster_unreachable")


def too_many() -> ResourceExhausted:
    """The error for too many open connections."""
    return ResourceExhausted(
        "Too many connections to this cluster are open.", reason="too_many_connections"
    )


def new_connection_id(replica_id: str) -> str:
    """An id nobody can guess, which says the replica that waits for the agent to dial back."""
    return f"{replica_id}.{new_id('', length=24)}"


def replica_of(connection_id: str) -> str:
    """The replica that made a connection's id."""
    return connection_id.partition(".")[0]


def cluster_topic(cluster_id: str) -> str:
    """The topic touched when the cluster or its agent's credential changes."""
    return f"cluster:{cluster_id}"


def tunnel_topic(cluster_id: str) -> str:
    """The topic touched when a cluster's tunnel ends at another replica."""
    return f"tunnel:{cluster_id}"


def check_session(value: str) -> str:
    """The id of an agent's life; raises InvalidArgument."""
    if not is_identifier(value):
        raise InvalidArgument("session_id is not an identifier.", param="session_id")
    return value
