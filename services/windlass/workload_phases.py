"""Phases of a workload and bounds of its load, as agents report them and services read them."""

from windlass.api.clusters.v1 import clusters_pb2 as pb

# Nothing of the workload runs any more, nor will.
TERMINAL_PHASES = frozenset({pb.PHASE_SUCCEEDED, pb.PHASE_FAILED, pb.PHASE_STOPPED})
MAX_WAIT_SECONDS = 3600.0
MAX_AT_ONCE = 100_000
_MOST_OF_LOAD = {
    "cache_percent": 100,
    "gpu_percent": 100,
    "wait_seconds": MAX_WAIT_SECONDS,
    "requests_at_once": MAX_AT_ONCE,
    "requests": MAX_AT_ONCE,
}


def is_possible(load: pb.ServingLoad) -> bool:
    """Returns True if each number of a load is within its bounds."""
    return all(0 <= value <= _MOST_OF_LOAD[said.name] for said, value in load.ListFields())
