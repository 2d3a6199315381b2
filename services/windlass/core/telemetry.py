"""Logs, metrics and the request id that ties them together."""

import logging
import sys
from contextvars import ContextVar

import structlog
from prometheus_client import Counter, Gauge, Histogram

request_id: ContextVar[str] = ContextVar("request_id", default="")

RPC_HANDLED = Counter(
    "windlass_rpc_handled_total", "RPCs finished, by outcome.", ["service", "method", "code"]
)
RPC_SECONDS = Histogram(
    "windlass_rpc_seconds",
    "Time to handle a unary RPC.",
    ["service", "method"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
)
RPC_STREAMS = Gauge("windlass_rpc_streams", "Streams open now.", ["service", "method"])
LOOP_FAILURES = Counter(
    "windlass_loop_failures_total", "Rounds of a background loop that raised.", ["loop"]
)

_SECRET_WORDS = ("authorization", "secret", "password", "api_key", "token_value", "credential")


def _add_request_id(
    _logger: object, _name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if identifier := request_id.get():
        event.setdefault("request_id", identifier)
    return event


def _redact(
    _logger: object, _name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    for key in event:
        if any(word in key.lower() for word in _SECRET_WORDS):
            event[key] = "[redacted]"
    return event


def configure_logging(*, level: str = "INFO", json: bool | None = None) -> None:
    """Sends structured logs to stderr: JSON, or coloured lines on a terminal."""
    as_json = not sys.stderr.isatty() if json is None else json
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add_request_id,
            _redact,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module."""
    bound: structlog.stdlib.BoundLogger = structlog.get_logger(component=name)
    return bound
