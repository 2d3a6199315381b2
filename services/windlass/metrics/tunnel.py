"""Sessions: tunnels into clusters, and the listener for kubectl"""

from prometheus_client import Counter, Gauge, Histogram

DIAL_SECONDS = Histogram(
    "windlass_tunnel_dial_seconds",
    "Time to open a connection into a cluster.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
KUBERNETES_REQUESTS = Counter(
    "windlass_kubernetes_requests_total", "Requests for clusters' API servers.", ["outcome"]
)
KUBERNETES_CONNECTIONS = Gauge(
    "windlass_kubernetes_connections", "Connections of clients open now."
)
CONTROL_STREAMS = Gauge(
    "windlass_tunnel_control_streams", "Agents whose control stream ends at this process."
)
CONNECTIONS = Gauge(
    "windlass_tunnel_connections", "Connections into clusters that this process carries."
)
DIAL_FAILURES = Counter(
    "windlass_tunnel_dial_failures_total",
    "Connections into clusters that did not open.",
    ["reason"],
)
