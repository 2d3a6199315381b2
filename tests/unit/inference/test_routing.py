"""A route says what the start of its engine waits for, and loads are told apart from routes."""

import asyncio
from dataclasses import replace

import pytest

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.db.paging import STREAM_PAGE_BYTES
from windlass.inference.domain import RUNNING, Engine, Name, Rows, View, WantedVersion
from windlass.inference.routing import Routes, loads_of, routes_of

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


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({"requests": 7, "cache_percent": 40}, {"requests": 7, "cache_percent": 40}),
        ({"requests": 0, "wait_seconds": 1.0}, {"requests": 0}),
        ({"gpu_percent": 50}, None),
        # What cannot be is not known; see `is_possible`.
        ({"requests": 10**9, "cache_percent": 40}, None),
        ({"requests": -1}, None),
    ],
)
def test_a_load_is_what_the_engines_agent_says(
    said: dict[str, int], known: dict[str, int] | None
) -> None:
    status = clusters_pb2.WorkloadStatus()
    status.CopyFrom(ANSWERS)
    status.load.CopyFrom(clusters_pb2.ServingLoad(**said))
    view = View(names={BASE.version_id: BASE}, statuses={"eng-1": status}, clusters={"c1": CLUSTER})
    found = loads_of(Rows(3.0, [engine()], WANTS), view)
    load = known and pb.ReplicaLoad(address="unix:///x", engine_version_id="mv-1", **known)
    assert found == ({"unix:///x": load} if load else {})


@pytest.mark.parametrize("has_door", [True, False])
def test_a_machines_door_leads_to_each_of_its_engines(has_door: bool) -> None:
    cluster = clusters_pb2.Cluster()
    cluster.CopyFrom(CLUSTER)
    if has_door:
        cluster.capacity.direct.address = "10.0.0.7:8444"
    view = View(
        names={BASE.version_id: BASE}, statuses={"eng-1": ANSWERS}, clusters={"c1": cluster}
    )
    (endpoint,) = routes_of(Rows(3.0, [engine()], WANTS), view, "builtin")["mv-1"].endpoints
    assert endpoint.HasField("direct") is has_door
    assert endpoint.direct == cluster.capacity.direct
    assert endpoint.address == "unix:///x"


def load(address: str, requests: int) -> pb.ReplicaLoad:
    return pb.ReplicaLoad(address=address, engine_version_id="mv-1", requests=requests)


async def test_a_load_is_told_once_and_without_the_routes_of_its_adapters() -> None:
    routes = Routes()
    known = {f"mv-{one}": pb.Route(version_id=f"mv-{one}") for one in range(1000)}
    routes.publish(known, {"a": load("a", 1), "b": load("b", 2)})
    told = routes.follow()
    first = await anext(told)
    assert (first.snapshot, len(first.routes), first.more) == (True, 1000, True)
    rest = await anext(told)
    assert [*rest.loads] == [load("a", 1), load("b", 2)]
    assert not rest.more
    coming = asyncio.ensure_future(anext(told))
    await asyncio.sleep(0)
    routes.publish(known, {"a": load("a", 1), "b": load("b", 2)})
    # What changes meanwhile is told as it is by then.
    routes.publish(known, {"a": load("a", 5), "b": load("b", 2)})
    routes.publish(known, {"a": load("a", 6)})
    rest = await coming
    assert not rest.more
    assert sorted(rest.loads, key=lambda one: one.address) == [
        load("a", 6),
        pb.ReplicaLoad(address="b"),
    ]
    assert rest.ByteSize() < 100


async def test_many_loads_are_pages_of_one_change() -> None:
    routes, name = Routes(), "tunnel://" + 400 * "c"
    routes.publish({}, {f"{name}{one}": load(f"{name}{one}", 1) for one in range(4000)})
    told, pages = routes.follow(), [pb.RoutesDelta(more=True)]
    while pages[-1].more:
        pages.append(await anext(told))
    assert len(pages) == 4
    assert all(page.ByteSize() <= STREAM_PAGE_BYTES for page in pages)
    assert sum(len(page.loads) for page in pages) == 4000
