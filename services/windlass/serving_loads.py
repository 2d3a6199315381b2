"""What agents say of the load of engines, held to what can be."""

from windlass.api.clusters.v1 import clusters_pb2 as pb

MAX_WAIT_MS = 3_600_000
MAX_AT_ONCE = 100_000
_MOST = {
    "cache_percent": 100,
    "gpu_percent": 100,
    "wait_ms": MAX_WAIT_MS,
    "requests_at_once": MAX_AT_ONCE,
}


def can_be(load: pb.ServingLoad) -> bool:
    """Returns True if each number of a load is within its bounds."""
    return all(0 <= value <= _MOST[said.name] for said, value in load.ListFields())
