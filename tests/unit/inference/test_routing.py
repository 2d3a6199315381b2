"""A route says what the start of its engine waits for."""

from dataclasses import replace

import pytest

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import RUNNING, Engine, Name, Rows, View, WantedVersion
from windlass.inference.routing import routes_of

BASE = Name("toy", "", "", "mv-1", "mv-1")
ADAPTER = Name("ft:toy", "", "", "mv-2", "mv-1")
CLUSTER = clusters_pb2.Cluster(id="c1", roles=["engines"], shared=True, embedded=True)
WANTS = [WantedVersion(name.version_id, "mv-1", 1.0, 1.0) for name in (BASE, ADAPTER)]


def engine(error: str = "") -> Engine:
    return Engine(
        id="eng-1", version_id="mv-1", model="toy", project_id="", organization_id="",
        cluster_id="c1", engine="builtin", desired=RUNNING, generation=1, put_generation=1,
        adapters=("mv-2",), created_at=1.0, urls_at=1.0, error=error, failed_at=2.0 * bool(error),
    )  # fmt: skip


def waits(
    *engines: Engine,
    version: str = "mv-1",
    connected: bool = True,
    status: clusters_pb2.WorkloadStatus | None = None,
) -> str:
    view = View(
        names={name.version_id: name for name in (BASE, ADAPTER)},
        statuses={} if status is None else {one.id: status for one in engines},
        clusters={"c1": CLUSTER} if connected else {},
    )
    return routes_of(Rows(3.0, engines, WANTS), view, "builtin")[version].waits_for


STARTING = clusters_pb2.PHASE_STARTING
ANSWERS = clusters_pb2.WorkloadStatus(phase=clusters_pb2.PHASE_RUNNING, endpoint="unix:///x")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (None, "waiting for the cluster to start the engine"),
        (
            clusters_pb2.WorkloadStatus(phase=clusters_pb2.PHASE_PENDING),
            "waiting for the cluster to start the engine",
        ),
        (
            clusters_pb2.WorkloadStatus(phase=STARTING, reason="Downloading"),
            "copying the model to the engine's machine",
        ),
        (
            clusters_pb2.WorkloadStatus(phase=STARTING, reason="Loading", message="\n\ndata: x"),
            "starting the engine",
        ),
        (
            clusters_pb2.WorkloadStatus(
                phase=clusters_pb2.PHASE_PENDING, reason="Queued", message="Others are before."
            ),
            "waiting for quota in the engine's cluster",
        ),
        (ANSWERS, ""),
    ],
)
def test_a_start_is_told_step_by_step(
    status: clusters_pb2.WorkloadStatus | None, words: str
) -> None:
    assert waits(engine(), status=status) == words


def test_what_is_not_the_engines_own_start_is_told_too() -> None:
    assert waits() == "waiting for a place for the engine"
    assert "not connected" in waits(engine(), connected=False)
    assert waits(engine(), version="mv-2", status=ANSWERS) == "loading the adapter"
    full = "waiting for a place among the adapters of the engine"
    assert waits(replace(engine(), adapters=()), version="mv-2", status=ANSWERS) == full
    loads, others = engine(), replace(engine(), id="eng-2", adapters=())
    both = waits(others, loads, version="mv-2", status=ANSWERS)
    assert both == "loading the adapter"
    assert waits(engine("no memory")) == ""
