"""Claims of the tables of sessions."""

from windlass.core.leaving.claims import LeavingClaims, nobodys
from windlass.sessions.tunnel.tables import replicas, tunnels

CLAIMS = LeavingClaims(
    "sessions",
    (
        nobodys(replicas, "processes of ours"),
        nobodys(tunnels, "which process has a cluster's tunnel"),
    ),
)
