"""Choice of a job's cluster, and jobs that a project's quota can never hold."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.jobs.domain.job import Job, JobState, Plan, ProjectPlacement, Spec
from windlass.jobs.scheduling.cluster_snapshot import (
    Assigned,
    ClusterQueueState,
    ClusterSnapshot,
    FlavorQuota,
    SchedulableCluster,
    snapshot_of,
)
from windlass.jobs.scheduling.placement import decide
from windlass.jobs.scheduling.quota_admission import misfit, require_libraries, require_quota
from windlass.jobs.scheduling.scoring import Load, Verdict, Waiting, score
from windlass.jobs_api.extension import Resources

TRL = frozenset({"trl"})
PROJECT = "proj_1"


def a_job(*, gpus: int = 1, nodes: int = 1, cpus: int = 0) -> Job:
    spec = Spec(
        model="tiny", model_version_id="version-1", model_bytes=1, training_file="file-1",
        resources=Resources(gpus=gpus, cpus=cpus),
    )  # fmt: skip
    return Job(
        id="ftjob-1", organization_id="org-1", project_id=PROJECT, spec=spec, created_at_ms=1,
        model_name="ft:tiny", state=JobState.QUEUED,
        plan=Plan(framework="trl", schema_version=1, config={}, num_nodes=nodes),
    )  # fmt: skip


def gpus(available: int, attainable: int = 8, *, cpu: int = 100_000) -> tuple[FlavorQuota, ...]:
    return (
        FlavorQuota(resource="nvidia.com/gpu", attainable=attainable, available=available),
        FlavorQuota(resource="cpu", attainable=cpu, available=cpu),
    )


def kubernetes(
    name: str, *quotas: FlavorQuota, pending: int = 0, price: int = 0, ready: bool = True,
    active: bool = True, project: str = PROJECT,
) -> SchedulableCluster:  # fmt: skip
    place = ProjectPlacement(namespace="team-a", queue="team-a", cluster_queue=f"{name}-queue")
    queue = ClusterQueueState(
        name=f"{name}-queue", quotas=quotas, pending=pending, active=active, message="Stopped."
    )
    return SchedulableCluster(
        id=name, name=name, executor="kubernetes", backends=TRL,
        assigned={project: Assigned(place=place, price_micros=price, ready=ready, message="No.")},
        queues={queue.name: queue} if quotas else {},
    )  # fmt: skip


def process(name: str, *, slots: int = 2, gpus: int = 8) -> SchedulableCluster:
    return SchedulableCluster(id=name, name=name, shared=True, slots=slots, gpus=gpus, backends=TRL)


def snapshot(*clusters: SchedulableCluster, away: str = "") -> ClusterSnapshot:
    """A snapshot where the project is assigned to what says so, and to a cluster that is away."""
    assigned = {one.id for one in clusters if PROJECT in one.assigned} | ({away} - {""})
    return ClusterSnapshot(
        clusters=clusters, assignments={PROJECT: frozenset(assigned)} if assigned else {}
    )


def order(job: Job, *clusters: SchedulableCluster, load: Load | None = None) -> list[str]:
    return [one.cluster_id for one in score(job, snapshot(*clusters), load or Load())]


def of(cluster: str, verdicts: list[Verdict]) -> Verdict:
    return next(one for one in verdicts if one.cluster_id == cluster)


def test_room_comes_before_price_and_price_before_the_rest() -> None:
    full, dear = kubernetes("full", *gpus(0)), kubernetes("dear", *gpus(2), price=9_000_000)
    cheap = kubernetes("cheap", *gpus(1), price=1_000_000)
    assert order(a_job(), full, dear) == ["dear", "full"]
    assert order(a_job(), full, dear, cheap) == ["cheap", "dear", "full"]
    assert order(a_job(gpus=2), full, dear, cheap) == ["dear", "cheap", "full"]


def test_where_all_are_full_the_job_queues_where_most_room_or_the_shortest_queue_is() -> None:
    some, none = kubernetes("some", *gpus(2)), kubernetes("none", *gpus(0))
    assert order(a_job(gpus=4), none, some) == ["some", "none"]
    short, long = kubernetes("short", *gpus(0), pending=1), kubernetes("long", *gpus(0), pending=90)
    verdicts = score(a_job(), snapshot(long, short), Load())
    assert [one.cluster_id for one in verdicts] == ["short", "long"]
    assert verdicts[0].fits
    assert verdicts[0].chosen
    assert "0 GPUs free" in verdicts[0].reason


def test_all_nodes_count_together() -> None:
    small, large = kubernetes("small", *gpus(8)), kubernetes("large", *gpus(16, 16))
    verdicts = score(a_job(gpus=8, nodes=2), snapshot(small, large), Load())
    assert verdicts[0].cluster_id == "large"
    assert not of("small", verdicts).fits
    assert "8 GPUs at most" in of("small", verdicts).reason
    assert "16 GPUs" in of("small", verdicts).reason


def test_several_nodes_need_a_cluster_that_has_several() -> None:
    (verdict,) = score(a_job(nodes=2), snapshot(process("here")), Load())
    assert (verdict.fits, verdict.reason) == (False, "It has one node; the job asks for 2")
    assert score(a_job(nodes=1), snapshot(process("here")), Load())[0].fits


def test_what_was_placed_and_is_not_seen_yet_takes_room() -> None:
    job, east, west = a_job(gpus=4), kubernetes("east", *gpus(8)), kubernetes("west", *gpus(7))
    load, found = Load(), snapshot(east, west)
    placed = [decide(job, found, load, now=1)[1].job for _ in range(4)]
    assert [one.cluster_id for one in placed] == ["east", "west", "east", "west"]
    assert placed[0].place == ProjectPlacement(
        namespace="team-a", queue="team-a", cluster_queue="east-queue"
    )
    known = Load(waiting={("east", "east-queue"): Waiting(1, Counter(gpus=8))})
    assert score(job, found, known)[0].cluster_id == "west"


def test_other_things_equal_the_one_that_knows_the_model_is_chosen() -> None:
    east, west = kubernetes("east", *gpus(4)), kubernetes("west", *gpus(4))
    assert order(a_job(), east, west)[0] == "west"
    load = Load(trained=frozenset({("east", "version-1")}))
    assert order(a_job(), east, west, load=load)[0] == "east"


def test_a_stopped_queue_is_the_last_resort() -> None:
    stopped, full = kubernetes("stopped", *gpus(8), active=False), kubernetes("full", *gpus(0))
    verdicts = score(a_job(), snapshot(stopped, full), Load(waiting={}))
    assert of("stopped", verdicts).points.get("headroom", 0) == 0
    assert "Stopped." in of("stopped", verdicts).reason


def test_assigned_clusters_are_preferred_and_others_are_not_shown() -> None:
    mine, anyone = kubernetes("mine", *gpus(0), pending=50), process("anyone")
    theirs = kubernetes("theirs", *gpus(8), project="proj_2")
    assert order(a_job(), mine, anyone, theirs) == ["mine", "anyone"]
    unready = kubernetes("unready", *gpus(8), ready=False)
    verdicts = score(a_job(), snapshot(unready, anyone), Load())
    assert verdicts[0].cluster_id == "anyone"
    assert of("unready", verdicts).reason.endswith("yet: No.")


def test_processes_are_spread_by_free_slots_and_a_full_machine_queues() -> None:
    large, small, load = process("large", slots=4), process("small", slots=2), Load()
    found = snapshot(large, small)
    chosen = [decide(a_job(), found, load, now=1)[1].job.cluster_id for _ in range(8)]
    assert Counter(chosen[:6]) == {"large": 4, "small": 2}
    assert Counter(chosen) == {"large": 5, "small": 3}
    assert decide(a_job(), found, load, now=1)[1].job.place is None


def test_a_machine_gives_its_gpus_cpus_and_memory_out_with_its_slots() -> None:
    machine = SchedulableCluster(
        id="one", name="one", shared=True, slots=8, gpus=4, cpus=8, memory_bytes=64 * 2**30,
        held={"gpus": 1, "cpu": 2000}, backends=TRL,
    )  # fmt: skip
    found, load = snapshot(machine), Load()
    assert score(a_job(gpus=2), found, load)[0].reason == (
        "8 of its 8 slots are free, and 3 GPUs of 4 GPUs"
    )
    for _ in range(2):
        decide(a_job(gpus=1, cpus=2), found, load, now=1)
    (full,) = score(a_job(gpus=2), found, load)
    assert (full.fits, full.points["headroom"]) == (True, 20)
    assert full.reason == "6 of its 8 slots are free, and 1 GPU of 4 GPUs"
    (short,) = score(a_job(gpus=1, cpus=4), found, load)
    assert short.reason == "6 of its 8 slots are free, and 2 CPUs of 8 CPUs"
    (none,) = score(a_job(gpus=0), found, load)
    assert (none.points["headroom"], none.reason) == (100, "6 of its 8 slots are free")


def test_a_machine_with_free_gpus_comes_before_one_whose_gpus_are_taken() -> None:
    busy, idle = process("busy", slots=8, gpus=2), process("idle", slots=2, gpus=2)
    load = Load(taken={"busy": Counter(gpus=2)})
    assert order(a_job(gpus=2), busy, idle, load=load)[0] == "idle"
    assert order(a_job(gpus=0), busy, idle, load=load)[0] == "busy"


def test_a_job_that_fits_nowhere_waits_with_the_reason() -> None:
    decision, change = decide(a_job(gpus=9), snapshot(process("one")), Load(), now=5)
    assert change.job.queue.reason == "It has 8 GPUs; the job asks for 9 GPUs"
    assert change.job.not_before_ms > 5
    assert not decision.verdicts[0].fits
    _, several = decide(a_job(gpus=9), snapshot(process("one"), process("two")), Load(), now=5)
    assert several.job.queue.reason == "No live cluster has the resources that the job needs"


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        pytest.param(snapshot(kubernetes("east", *gpus(0, 4)), away="west"), 5, id="one is away"),
        pytest.param(snapshot(kubernetes("east")), 5, id="its queue is unknown"),
        pytest.param(
            snapshot(kubernetes("east", *gpus(0, 4)), kubernetes("west", *gpus(0))),
            8,
            id="one fits",
        ),
        pytest.param(snapshot(process("one", slots=0, gpus=0)), 5, id="nothing was said yet"),
        pytest.param(snapshot(), 5, id="there is none"),
        pytest.param(
            replace(snapshot(process("one", gpus=4)), shared_away=True), 5, id="a machine is away"
        ),
        pytest.param(
            snapshot(kubernetes("east", *gpus(0, 4)), process("one")), 5, id="a machine has them"
        ),
        pytest.param(
            snapshot(kubernetes("east", *gpus(0, 4))), 4, id="all of it, though it is taken"
        ),
    ],
)
def test_only_what_is_surely_too_much_is_refused(found: ClusterSnapshot, asked: int) -> None:
    require_quota(a_job(gpus=asked), found)
    require_quota(a_job(gpus=asked), None)


def test_what_no_queue_can_ever_hold_is_refused_with_the_numbers() -> None:
    found = snapshot(kubernetes("east", *gpus(0, 4)), kubernetes("west", *gpus(8, 8)))
    with pytest.raises(InvalidArgument) as refused:
        require_quota(a_job(gpus=8, nodes=2), found)
    assert (refused.value.reason, refused.value.param) == ("exceeds_quota", "windlass.resources")
    for words in ("16 GPUs on 2 nodes", "east-queue holds 4 GPUs", "west-queue holds 8 GPUs"):
        assert words in refused.value.message
    with pytest.raises(InvalidArgument, match=r"holds 2 CPUs at most.*asks for 3 CPUs"):
        require_quota(a_job(gpus=0, cpus=3), snapshot(kubernetes("east", *gpus(0, cpu=2000))))
    with pytest.raises(InvalidArgument) as refused:
        require_quota(a_job(gpus=5), snapshot(process("one", gpus=4), process("two", gpus=2)))
    assert (refused.value.reason, refused.value.param) == ("exceeds_machines", "windlass.resources")
    assert refused.value.message == (
        "No machine is large enough for a job that asks for 5 GPUs. Cluster one: it has 4 GPUs; "
        "the job asks for 5 GPUs. Cluster two: it has 2 GPUs; the job asks for 5 GPUs."
    )
    no_gpus = FlavorQuota(resource="cpu", attainable=1, available=1)
    with pytest.raises(InvalidArgument, match="holds 0 GPUs at most"):
        require_quota(a_job(), snapshot(kubernetes("east", no_gpus)))


def test_a_package_that_a_setting_needs_is_there_or_the_job_goes_elsewhere() -> None:
    plan = Plan(framework="trl", schema_version=1, config={}, libraries={"deepspeed": "sharding"})
    job = replace(a_job(), plan=plan)
    bare, equipped = process("bare", slots=9), process("equipped")
    equipped = replace(equipped, libraries=frozenset({"deepspeed"}))
    verdicts = score(job, snapshot(bare, equipped), Load())
    assert verdicts[0].cluster_id == "equipped"
    assert of("bare", verdicts).reason == "It does not have deepspeed, which sharding needs"
    require_libraries(job, snapshot(bare, equipped))
    require_libraries(job, snapshot(kubernetes("bare", *gpus(8)), away="another"))
    require_libraries(job, snapshot(replace(bare, backends=frozenset({"bigram"}))))
    require_libraries(a_job(), snapshot(bare))
    found = snapshot(bare, kubernetes("east", *gpus(8)))
    with pytest.raises(InvalidArgument, match="sharding needs deepspeed, which") as refused:
        require_libraries(job, found)
    assert (refused.value.reason, refused.value.param) == (
        "library_not_installed",
        "windlass.config.sharding",
    )
    assert misfit(job, found) == refused.value.message


POOL = st.lists(
    st.one_of(
        st.builds(
            lambda name, free, pending, price, ready: kubernetes(
                name, *gpus(free), pending=pending, price=price, ready=ready
            ),
            st.sampled_from("abc"), st.integers(0, 8), st.integers(0, 50),
            st.integers(0, 10**7), st.booleans(),
        ),
        st.builds(process, st.sampled_from("xyz"), slots=st.integers(1, 4), gpus=st.integers(0, 8)),
    ),
    unique_by=lambda one: one.id,
)  # fmt: skip


@given(pool=POOL, asked=st.integers(0, 12), load=st.integers(0, 9))
def test_the_best_that_fits_is_chosen_and_every_cluster_is_judged_once(
    pool: list[SchedulableCluster], asked: int, load: int
) -> None:
    job = a_job(gpus=asked)
    verdicts = score(job, snapshot(*pool), Load(jobs=Counter({one.id: load for one in pool})))
    assert sorted(one.cluster_id for one in verdicts) == sorted(one.id for one in pool)
    assert all(one.reason for one in verdicts)
    fitting = [one for one in verdicts if one.fits]
    assert [one.chosen for one in verdicts] == [
        bool(fitting) and place == 0 for place in range(len(verdicts))
    ]
    if fitting:
        assert fitting[0].total == max(one.total for one in fitting)
    decided = decide(job, snapshot(*pool), Load(), now=1)[1].job
    assert bool(decided.cluster_id) == bool(fitting)


def test_the_world_is_read_from_the_contract() -> None:
    answer = pb.ListCapacityResponse(
        clusters=[
            pb.Cluster(
                id="c1", name="east", live=True, executor="kubernetes", roles=["jobs"],
                capacity=pb.Capacity(backends=["trl"], libraries=["deepspeed"], gpus=8),
            ),
            pb.Cluster(id="c2", live=False, roles=["jobs"]),
            pb.Cluster(id="c3", live=True, shared=True, roles=["engines"]),
        ],
        assignments=[
            pb.Assignment(
                cluster_id="c1", project_id=PROJECT, namespace="n", local_queue="l",
                cluster_queue="q", ready=True, price_micros=5, node_selector={"a": "b"},
            ),
            pb.Assignment(cluster_id="c1", project_id="proj_gone", removing=True),
            pb.Assignment(cluster_id="c2", project_id=PROJECT),
        ],
        queues=[
            pb.ClusterQueues(
                cluster_id="c1",
                queues=[
                    pb.ClusterQueue(
                        name="q", active=True, pending=3,
                        quotas=[
                            pb.ResourceQuota(resource="amd.com/gpu", attainable=8, available=3),
                            pb.ResourceQuota(resource="pods", attainable=900, available=900),
                        ],
                    )
                ],
            )
        ],
    )  # fmt: skip
    found = snapshot_of(answer)
    assert [one.id for one in found.clusters] == ["c1"]
    assert found.assignments == {PROJECT: frozenset({"c1", "c2"})}
    assert found.clusters[0].libraries == {"deepspeed"}
    assert (found.answering, found.backends, found.is_shared) == ([PROJECT], ["trl"], False)
    queue = found.clusters[0].queue_of(PROJECT)
    assert queue is not None
    assert (queue.available("gpus"), queue.attainable("gpus"), queue.pending) == (3, 8, 3)
    verdict = score(replace(a_job(gpus=3)), found, Load())[0]
    assert verdict.chosen
    assert verdict.points["headroom"] == 100
