"""Every process"""

from importlib.metadata import PackageNotFoundError, version

from prometheus_client import Counter, Gauge


def _release() -> str:
    try:
        return version("windlass")
    except PackageNotFoundError:
        return "0"


BUILD_INFO = Gauge("windlass_build_info", "Release that the process runs; always 1.", ["version"])
BUILD_INFO.labels(_release()).set(1)
LOOP_FAILURES = Counter(
    "windlass_loop_failures_total", "Rounds of a background loop that raised.", ["loop"]
)
SAMPLED = Gauge(
    "windlass_sample_timestamp_seconds",
    "Unix time at which values that need a query were last read.",
    ["sample"],
)
