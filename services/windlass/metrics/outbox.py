"""Effects owed to other services"""

from prometheus_client import Gauge

AGE_SECONDS = Gauge(
    "windlass_outbox_age_seconds",
    "Age of the oldest row that is not delivered (`jobs`, `usage`, `audit`), or how long the first "
    "delivery has been due (`webhooks`); 0 without one.",
    ["outbox"],
)
