"""Engines and adapters of projects whose data stays somewhere go nowhere else."""

from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.ids import EVERYONE
from windlass.inference.domain import Engine, InferencePolicy, Name, Rows, View, WantedVersion
from windlass.inference.planning import EngineChanges, Planner
from windlass.inference.routing import routes_of

POLICY = InferencePolicy("builtin", 8, 4, 600.0, 3600.0)
OWN = Name("own", "proj", "org", "mv-own", "mv-own")
GLOBAL = Name("global", "", "", "mv-global", "mv-global")
ADAPTER = Name("ft", "proj", "org", "mv-ft", "mv-global")
LABELS = st.sampled_from(["", "US", "EU", "JP"])


def cluster(name: str, label: str) -> pb.Cluster:
    capacity = pb.Capacity(engines=["builtin"], engine_slots=4)
    return pb.Cluster(
        id=name, live=True, executor="process", roles=["engines"], shared=True, embedded=True,
        geography=label, capacity=capacity,
    )  # fmt: skip


def view(labels: list[str], geography: str, **statuses: pb.WorkloadStatus) -> View:
    clusters = {f"c{at}": cluster(f"c{at}", label) for at, label in enumerate(labels)}
    names = {one.version_id: one for one in (OWN, GLOBAL, ADAPTER)}
    return View(
        names=names, statuses=statuses, clusters=clusters,
        geographies={"proj": geography} if geography else {},
    )  # fmt: skip


def an_engine(name: Name, where: str, *adapters: str) -> Engine:
    return Engine(
        id="eng-1", version_id=name.version_id, model=name.model, project_id=name.project_id,
        organization_id=name.organization_id, cluster_id=where, engine="builtin",
        desired="running", generation=1, put_generation=1, adapters=adapters, created_at=50.0,
        urls_at=50.0,
    )  # fmt: skip


def wanted(name: Name) -> WantedVersion:
    return WantedVersion(name.version_id, name.engine_version_id, 100.0, 50.0)


def planned(seen: View, *names: Name, engines: tuple[Engine, ...] = ()) -> EngineChanges:
    numbers = count(2)
    rows = Rows(100.0, engines, [wanted(one) for one in names])
    return Planner(rows, seen, POLICY, lambda: f"eng-{next(numbers)}").plan()


def running(engine: Engine, *adapters: str) -> dict[str, pb.WorkloadStatus]:
    status = pb.WorkloadStatus(
        workload_id=engine.id, generation=1, phase=pb.PHASE_RUNNING, endpoint="unix:///e",
        cluster_id=engine.cluster_id, capabilities=pb.EngineCapabilities(adapters=True),
        adapters=[pb.LoadedAdapter(id=one, version_id=one) for one in adapters],
    )  # fmt: skip
    return {engine.id: status}


@given(st.lists(LABELS, max_size=5), LABELS)
def test_an_engine_starts_in_its_geography_or_not(labels: list[str], geography: str) -> None:
    made = planned(view(labels, geography), OWN).creates
    able = {f"c{at}" for at, label in enumerate(labels) if geography in ("", label)}
    assert len(made) == bool(able)
    assert {one.cluster_id for one in made} <= able


@given(LABELS, LABELS)
def test_an_engine_ends_where_the_label_is_another_now(label: str, geography: str) -> None:
    engine = an_engine(OWN, "c0")
    seen = view([label, geography], geography, **running(engine))
    changes = planned(seen, OWN, engines=(engine,))
    ends = [after for before, after in changes.updates if after.desired != "running"]
    if geography in ("", label):
        assert (ends, changes.creates) == ([], [])
    else:
        assert [one.id for one in ends] == ["eng-1"]
        # It moves.
        assert [one.cluster_id for one in changes.creates] == ["c1"]


@given(LABELS, LABELS)
def test_a_base_of_all_loads_an_adapter_in_its_geography_alone(label: str, geography: str) -> None:
    engine = an_engine(GLOBAL, "c0")
    seen = view([label], geography, **running(engine))
    changes = planned(seen, GLOBAL, ADAPTER, engines=(engine,))
    loading = [one for _, after in changes.updates for one in after.adapters]
    assert loading == (["mv-ft"] if geography in ("", label) else [])


@given(LABELS, LABELS)
def test_an_adapter_is_unloaded_and_answers_no_more_where_the_label_is_another(
    label: str, geography: str
) -> None:
    engine = an_engine(GLOBAL, "c0", "mv-ft")
    seen = view([label], geography, **running(engine, "mv-ft"))
    changes = planned(seen, GLOBAL, ADAPTER, engines=(engine,))
    fits = geography in ("", label)
    unloaded = [after.adapters for _, after in changes.updates]
    assert unloaded == ([] if fits else [()])
    rows = Rows(100.0, (engine,), [wanted(GLOBAL), wanted(ADAPTER)])
    routes = routes_of(rows, seen, "builtin")
    assert bool(routes["mv-ft"].endpoints) == fits
    if not fits:
        assert "another geography" in routes["mv-ft"].error
    # A base of all goes on to answer others; gateways hear where it is.
    assert [one.geography for one in routes["mv-global"].endpoints] == [label]


def test_an_assignment_does_not_stand_for_the_label() -> None:
    seen = view(["US"], "EU")
    assigned = {"c0": {"proj": pb.Assignment(ready=True), EVERYONE: pb.Assignment(ready=True)}}
    seen = replace(seen, assigned=assigned)
    assert not seen.permits("c0", "proj")
    assert seen.permits("c0", "")
    assert seen.permits("c0", "proj_b")
