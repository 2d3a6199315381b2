"""Choice of a cluster for a workload that is not a job: by the same rules, never its own."""

from dataclasses import replace

from tests.unit.jobs.test_scoring import PROJECT, gpus, kubernetes, process, snapshot

from windlass.jobs.scheduling.choosing import NOWHERE, PlacementRequest, choose
from windlass.jobs.scheduling.scoring import NO_ANSWER, UNFIT, Load
from windlass.jobs_api.extension import Resources


def request(*, count: int = 1, besides: str = "") -> PlacementRequest:
    return PlacementRequest(
        project_id=PROJECT, resources=Resources(gpus=count), except_cluster=besides
    )


def test_it_goes_where_a_job_would_go_but_to_no_machine_and_not_where_it_is() -> None:
    full, free = kubernetes("full", *gpus(0)), kubernetes("free", *gpus(4))
    there = snapshot(full, free, process("machine"))
    assert choose(request(), there, Load()).cluster_id == "free"
    assert choose(request(besides="free"), there, Load()).cluster_id == "full"


def test_it_needs_no_backend() -> None:
    bare = replace(kubernetes("bare", *gpus(4)), backends=frozenset())
    assert choose(request(), snapshot(bare), Load()).fits


def test_it_says_why_there_is_no_place() -> None:
    small = kubernetes("small", *gpus(1, 2))
    tiny = kubernetes("tiny", *gpus(1, 1))
    alone = choose(request(count=4), snapshot(small), Load())
    assert (alone.fits, "holds 2 GPUs at most" in alone.reason) == (False, True)
    assert choose(request(count=4), snapshot(small, tiny), Load()).reason == UNFIT
    assert choose(request(besides="small"), snapshot(small), Load()).reason == NOWHERE
    assert choose(request(), snapshot(away="far"), Load()).reason == NO_ANSWER
    others = kubernetes("others", *gpus(8), project="proj_2")
    assert choose(request(), snapshot(others), Load()).reason == NOWHERE
