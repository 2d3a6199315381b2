"""The gateway"""

from prometheus_client import Counter, Gauge, Histogram

CONNECTIONS = Gauge("windlass_http_connections", "Open connections of the gateway's listener.")
CLOSED = Counter(
    "windlass_http_connections_closed_total",
    "Connections that the gateway closed on its own account.",
    ["reason"],
)
REQUESTS = Counter("windlass_http_requests_total", "HTTP requests, by outcome.", ["area", "status"])
SECONDS = Histogram(
    "windlass_http_seconds",
    "Time to answer an HTTP request, whole streams included.",
    ["area"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600),
)
