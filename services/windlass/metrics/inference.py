"""Inference"""

from prometheus_client import Gauge

ENGINES = Gauge(
    "windlass_engines",
    "Engines by state (`starting`, `ready`, `sleeping`, `failed`, `ending`).",
    ["state"],
)
