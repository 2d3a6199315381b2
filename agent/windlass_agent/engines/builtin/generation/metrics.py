"""Prometheus metrics of the engine."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

FIRST_TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
INTER_TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)


class EngineMetrics:
    """Metrics of one engine, on a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.running = Gauge(
            "windlass_engine_sequences_running",
            "Sequences being prefilled or decoded.",
            registry=self.registry,
        )
        self.waiting = Gauge(
            "windlass_engine_sequences_waiting", "Sequences in line.", registry=self.registry
        )
        self.prompt_tokens = Counter(
            "windlass_engine_prompt_tokens_total", "Tokens prefilled.", registry=self.registry
        )
        self.generated_tokens = Counter(
            "windlass_engine_generated_tokens_total", "Tokens generated.", registry=self.registry
        )
        self.first_token = Histogram(
            "windlass_engine_first_token_seconds",
            "From a sequence's arrival to its first token.",
            buckets=FIRST_TOKEN_BUCKETS,
            registry=self.registry,
        )
        self.inter_token = Histogram(
            "windlass_engine_inter_token_seconds",
            "From one token of a sequence to the next.",
            buckets=INTER_TOKEN_BUCKETS,
            registry=self.registry,
        )
        self.finished = Counter(
            "windlass_engine_sequences_finished_total",
            "Sequences ended, by reason.",
            ["reason"],
            registry=self.registry,
        )
