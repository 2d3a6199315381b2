"""The gateway"""

from prometheus_client import Counter, Gauge, Histogram

from windlass.metrics.unlocked import UnlockedCounter, UnlockedHistogram

CONNECTIONS = Gauge("windlass_http_connections", "Open connections of the gateway's listener.")
CLOSED = Counter(
    "windlass_http_connections_closed_total",
    "Connections that the gateway closed on its own account.",
    ["reason"],
)
REQUESTS = Counter("windlass_http_requests_total", "HTTP requests, by outcome.", ["area", "status"])
SECONDS = Histogram(
    "windlass_http_request_duration_seconds",
    "Time to answer an HTTP request, whole streams included.",
    ["area"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600),
)
UNCHECKED = Gauge(
    "windlass_keys_unchecked",
    "1 while API keys that are known are accepted for inference though nobody can check them.",
)
UNCHECKED_REQUESTS = Counter(
    "windlass_keys_unchecked_requests_total", "Inference requests by keys that nobody could check."
)
FIRST_TOKEN_SECONDS = UnlockedHistogram(
    "windlass_inference_first_token_seconds",
    "From a streamed request's arrival to its first token, the start of an engine included.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
INTER_TOKEN_SECONDS = UnlockedHistogram(
    "windlass_inference_inter_token_seconds",
    "Mean time from one token of a streamed answer to the next.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5),
)
WAITING = Gauge(
    "windlass_inference_waiting_requests", "Requests that wait for a place at busy engines."
)
EJECTED = Gauge(
    "windlass_inference_ejected_engines",
    "Engines that this gateway leaves out, or lets back slowly, because they did not answer.",
)
ENGINE_CONNECTIONS = Counter(
    "windlass_inference_engine_connections_total",
    "Connections made to engines: on this machine, at an address, directly through a machine's "
    "door, by a tunnel that ends here, or by one that ends at another replica.",
    ["kind"],
)
HEDGED = Counter(
    "windlass_inference_hedged_requests_total",
    "Requests that were sent to two engines, by which one began to answer first.",
    ["outcome"],
)
WAIT_SECONDS = UnlockedHistogram(
    "windlass_inference_wait_seconds",
    "How long requests waited that found every engine of their model busy.",
    buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
PROMPT_TOKENS = UnlockedCounter(
    "windlass_inference_prompt_tokens_total", "Tokens of prompts, as usage counts them."
)
COMPLETION_TOKENS = UnlockedCounter(
    "windlass_inference_completion_tokens_total", "Tokens of answers, as usage counts them."
)
MODEL_REQUESTS = Counter(
    "windlass_model_requests_total",
    "Requests that an engine got, by model (adapters by their own names), project, and outcome: "
    "`answered`, `refused` by the engine, `failed`, or the client has `left`. Models and projects "
    "that are more than a page should have are `(others)`.",
    ["model", "project", "outcome"],
)
MODEL_TOKENS = Counter(
    "windlass_model_tokens_total",
    "Tokens of prompts (`prompt`), those of them known from before (`cached`), and of answers "
    "(`generated`), as usage counts them.",
    ["model", "project", "what"],
)
MODEL_FIRST_TOKEN_SECONDS = Histogram(
    "windlass_model_first_token_seconds",
    "From a streamed request's arrival to its first token, the start of an engine included.",
    ["model", "project"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120),
)
