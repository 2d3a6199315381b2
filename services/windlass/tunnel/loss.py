"""Loss of the other side of a TCP connection: a machine that is off closes nothing."""

import socket
from typing import Any

IDLE_SECONDS, PROBE_SECONDS, PROBES = 15, 5, 3
# For what was sent and is not acknowledged, while which the system sends no probes.
UNACKNOWLEDGED_SECONDS = 30


def detect_loss(connection: Any, *, may_stall: bool = False) -> None:
    """Makes the system end a connection within half a minute of the loss of its other side.

    `connection` is a socket, or an event loop's stand-in for one. One that `may_stall` is ended
    only while nothing is under way: Linux counts a reader that takes nothing as lost too.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": IDLE_SECONDS,
        "TCP_KEEPINTVL": PROBE_SECONDS,
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": 0 if may_stall else UNACKNOWLEDGED_SECONDS * 1000,
    }
    for name, value in options.items():
        # Systems other than Linux lack some.
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
