"""Clusters"""

from prometheus_client import Gauge

AGENTS = Gauge(
    "windlass_agents",
    "Agents of registered clusters, by executor and state (`live`, `silent`, `never_seen`).",
    ["executor", "state"],
)
