"""Processes with a database"""

from prometheus_client import Gauge

CONNECTIONS = Gauge(
    "windlass_database_connections",
    "Connections in a pool (`read`, `write`), by state (`used`, `idle`).",
    ["pool", "state"],
)
CONNECTIONS_MAX = Gauge(
    "windlass_database_connections_max", "Connections that a pool may open.", ["pool"]
)
