"""Jobs"""

from prometheus_client import Counter, Gauge, Histogram

JOBS = Gauge("windlass_jobs", "Jobs that have not ended, by state.", ["state"])
OLDEST_QUEUED_SECONDS = Gauge(
    "windlass_job_oldest_queued_seconds", "Age of the oldest queued job; 0 without one."
)
QUEUE_SECONDS = Histogram(
    "windlass_job_queue_seconds",
    "From a job's creation to its first start, in the process that stores the start.",
    buckets=(1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 10_800, 43_200, 86_400),
)
WEBHOOK_DELIVERIES = Counter(
    "windlass_webhook_deliveries_total",
    "Tries to tell a webhook of a job's end: `delivered`, `failed` (comes again), `given_up`.",
    ["outcome"],
)
ENDED = Counter(
    "windlass_jobs_ended_total", "Jobs that ended, in the process that stores the end.", ["state"]
)
