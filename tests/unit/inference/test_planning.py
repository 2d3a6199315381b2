"""The plan of engines keeps its bounds and comes to rest, whatever the rows and the world are."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.domain import (
    DELETED,
    EVICTABLE_SECONDS,
    RUNNING,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    WantedVersion,
)
from windlass.inference.planning import EngineChanges, Planner

NOW = 1_000_000.0
POLICY = InferencePolicy(
    engine="builtin", max_engines=2, max_adapters=2, idle_seconds=600, url_seconds=1800
)
BASES = ("mv-1", "mv-2", "mv-3", "mv-gone")
ADAPTERS = {f"{base}-{letter}": base for base in BASES for letter in "abc"}
NAMES = {
    version: Name(version, "", "org", version, engine)
    for version, engine in [*((base, base) for base in BASES[:3]), *ADAPTERS.items()]
    if engine != "mv-gone" and not version.endswith("c")
}
PHASES = [
    pb.PHASE_PENDING, pb.PHASE_STARTING, pb.PHASE_RUNNING, pb.PHASE_FAILED, pb.PHASE_STOPPED,
    pb.PHASE_SLEEPING,
]  # fmt: skip


def numbered() -> Callable[[], str]:
    numbers = count()
    return lambda: f"eng-new-{next(numbers)}"


@st.composite
def wants(draw: st.DrawFn) -> list[WantedVersion]:
    versions = draw(st.sets(st.sampled_from([*BASES, *ADAPTERS])))
    return [
        WantedVersion(version, ADAPTERS.get(version, version), NOW - age, NOW - age - 1)
        for version in sorted(versions)
        for age in [draw(st.sampled_from([0.0, 1.0, 20.0, 40.0, 700.0]))]
    ]


@st.composite
def servings(draw: st.DrawFn) -> list[Serving]:
    versions = draw(st.sets(st.sampled_from([*BASES, *ADAPTERS]), max_size=2))
    return [
        Serving(
            "", version, "org", version, ADAPTERS.get(version, version), replicas, NOW - age,
            sleep_seconds=draw(st.sampled_from([0, 0, 30])),
        )
        for version in sorted(versions)
        for replicas in [draw(st.integers(1, 3))]
        for age in [draw(st.sampled_from([1.0, 40.0]))]
    ]  # fmt: skip


@st.composite
def engine_rows(draw: st.DrawFn) -> list[Engine]:
    made = []
    slots = st.tuples(st.sampled_from(BASES), st.integers(0, 2))
    for version, replica in sorted(draw(st.sets(slots, max_size=2))):
        generation = draw(st.integers(1, 3))
        failed_at = draw(st.sampled_from([0.0, NOW - 30]))
        adapters = draw(st.lists(st.sampled_from(sorted(ADAPTERS)), max_size=2, unique=True))
        made.append(
            Engine(
                id=f"eng-{version}-{replica}",
                version_id=version,
                replica=replica,
                model=version,
                project_id="",
                organization_id="org",
                cluster_id=draw(st.sampled_from(["east", "west"])),
                engine="builtin",
                desired=draw(st.sampled_from([RUNNING, RUNNING, DELETED])),
                generation=generation,
                put_generation=generation,
                adapters=tuple(one for one in adapters if ADAPTERS[one] == version),
                created_at=NOW - 100,
                urls_at=NOW - draw(st.sampled_from([0, 2000])),
                asleep=draw(st.sampled_from([False, False, True])),
                failures=1 if failed_at else draw(st.integers(0, 3)),
                failed_at=failed_at,
                retry_at=failed_at and NOW - draw(st.sampled_from([-10, 10])),
            )
        )
    return made


def as_served(engine: Engine, servings: list[Serving]) -> Engine:
    """The engine as its serving has it: one that does not fit is replaced, which others test."""
    able = {one.version_id for one in servings if one.sleep_seconds}
    sleeps = engine.version_id in able
    return replace(engine, sleeps=sleeps, asleep=engine.asleep and sleeps and not engine.failed_at)


@st.composite
def worlds(draw: st.DrawFn, engines: list[Engine]) -> View:
    statuses = {
        engine.id: pb.WorkloadStatus(
            workload_id=engine.id,
            generation=engine.generation - draw(st.integers(0, 1)),
            phase=draw(st.sampled_from(PHASES)),
            endpoint="unix:///x",
        )
        for engine in engines
    }
    live = draw(st.sets(st.sampled_from(["east", "west"])))
    usually = st.sampled_from([True, True, False])
    clusters = {
        one: pb.Cluster(
            id=one,
            live=True,
            roles=["jobs", "engines"] if draw(usually) else ["jobs"],
            shared=draw(usually),
            embedded=draw(usually),
            capacity=pb.Capacity(
                engines=["builtin"],
                engine_slots=draw(st.integers(0, 3)),
                sleeping_engines=["builtin"] if draw(usually) else [],
            ),
        )
        for one in live
    }
    return View(
        names=NAMES,
        statuses=statuses,
        clusters=clusters,
        assigned={one: {"proj-a": pb.Assignment(ready=True)} for one in live if draw(usually)},
        tunnels=frozenset(one for one in live if draw(usually)),
    )


def applied(rows: Rows, plan: EngineChanges) -> Rows:
    """The rows as the store makes them."""
    engines = {engine.id: engine for engine in rows.engines}
    for old, new in plan.updates:
        assert engines[old.id] == old
        engines[old.id] = new
    for engine in plan.creates:
        engines[engine.id] = engine
    errors = {want.version_id: error for want, error in plan.errors if not want.serving}
    kept = [
        replace(want, error=errors.get(want.version_id, want.error))
        for want in rows.wants
        if want not in plan.dropped
    ]
    complaints = {want.serving.model: error for want, error in plan.errors if want.serving}
    served = [
        replace(serving, error=complaints.get(serving.model, serving.error))
        for serving in rows.servings
        if serving not in plan.ended
    ]
    return Rows(rows.now, list(engines.values()), kept, served)


@given(st.data())
@settings(max_examples=400)
def test_a_plan_keeps_the_bounds_and_comes_to_rest(data: st.DataObject) -> None:
    served = data.draw(servings())
    engines = [as_served(one, served) for one in data.draw(engine_rows())]
    rows = Rows(NOW, engines, data.draw(wants()), served)
    view = data.draw(worlds(engines))
    new_id = numbered()
    plan = Planner(rows, view, POLICY, new_id).plan()
    after = applied(rows, plan)
    running = [engine for engine in after.engines if engine.desired == RUNNING]
    assert len(running) <= POLICY.max_engines
    assert len({(engine.version_id, engine.replica) for engine in running}) == len(running)
    pinned = dict[str, int]()
    for one in after.servings:
        if {one.version_id, one.engine_version_id} <= NAMES.keys():
            most = pinned.get(one.engine_version_id, 1)
            pinned[one.engine_version_id] = max(most, one.min_replicas)
    assert all(engine.replica < pinned.get(engine.version_id, 1) for engine in running)
    for engine in plan.creates:
        assert view.reaches(engine.cluster_id)
        assert view.permits(engine.cluster_id, ""), "every project may ask for it"
    wanted = {want.engine_version_id for want in after.wants} | pinned.keys()
    for engine in running:
        assert len(engine.adapters) <= POLICY.max_adapters
        assert engine.version_id in wanted
        assert engine.version_id in {name.version_id for name in NAMES.values()}
    for old, new in plan.updates:
        told = ("desired", "adapters", "urls_at")
        visible = any(getattr(old, name) != getattr(new, name) for name in told)
        assert not visible or new.generation > old.generation
        assert old.desired == RUNNING, "what is deleted stays so"
        busy = [w for w in rows.wants if NOW - w.used_at < EVICTABLE_SECONDS]
        if new.desired == DELETED and old.version_id in {w.engine_version_id for w in busy}:
            gone = old.version_id == "mv-gone"
            # The second engine of a model yields to one that has waited without any.
            spare = old.replica > 0
            stays = view.reaches(old.cluster_id) and view.permits(old.cluster_id, "")
            places = [(one.version_id, one.replica) for one in running]
            taken = not view.answers(old, "") and (old.version_id, old.replica) in places
            assert gone or spare or taken or not stays, f"an engine in use was ended: {old}"
    # Nothing happened meanwhile, so there is nothing to do: no flapping.
    again = Planner(after, view, POLICY, new_id).plan()
    assert not again.creates
    assert not again.updates
    assert not again.dropped
    assert not again.ended
    # What made room for others has the reason why it gets none now, once.
    again = Planner(applied(after, again), view, POLICY, new_id).plan()
    assert not again.errors
