"""The states in which operators see engines."""

from prometheus_client import REGISTRY

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import DELETED, RUNNING, Engine, Rows, View
from windlass.inference.publishing import STATES, measure


def engine(identifier: str, *, desired: str = RUNNING, failed_at: float = 0.0) -> Engine:
    return Engine(
        id=identifier,
        version_id=identifier,
        model="m",
        project_id="",
        organization_id="",
        cluster_id="c",
        engine="builtin",
        desired=desired,
        generation=1,
        put_generation=1,
        adapters=(),
        created_at=0.0,
        urls_at=0.0,
        failed_at=failed_at,
    )


def counted() -> dict[str, float | None]:
    return {
        state: REGISTRY.get_sample_value("windlass_engines", {"state": state}) for state in STATES
    }


def test_each_engine_is_in_one_state() -> None:
    engines = [
        engine("silent"),
        engine("loading"),
        engine("up"),
        engine("idle"),
        engine("broken", failed_at=5.0),
        engine("gone", desired=DELETED),
    ]
    statuses = {
        "loading": pb.WorkloadStatus(phase=pb.PHASE_STARTING),
        "up": pb.WorkloadStatus(phase=pb.PHASE_RUNNING, endpoint="http://e"),
        "idle": pb.WorkloadStatus(phase=pb.PHASE_SLEEPING),
        "broken": pb.WorkloadStatus(phase=pb.PHASE_FAILED),
        "gone": pb.WorkloadStatus(phase=pb.PHASE_RUNNING, endpoint="http://g"),
    }
    view = View(names={}, statuses=statuses, clusters={})
    measure(Rows(now=0.0, engines=engines, wants=[]), view)
    assert counted() == {"starting": 2, "ready": 1, "sleeping": 1, "failed": 1, "ending": 1}
    measure(Rows(now=0.0, engines=[], wants=[]), view)
    assert counted() == dict.fromkeys(STATES, 0)
