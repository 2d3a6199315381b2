"""Processes that serve gRPC"""

from prometheus_client import Counter, Gauge, Histogram

HANDLED = Counter(
    "windlass_rpc_handled_total", "RPCs finished, by outcome.", ["service", "method", "code"]
)
SECONDS = Histogram(
    "windlass_rpc_duration_seconds",
    "Time to handle a unary RPC.",
    ["service", "method"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
)
STREAMS = Gauge("windlass_rpc_streams", "Streams open now.", ["service", "method"])
