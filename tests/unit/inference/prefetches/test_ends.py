"""When a prefetch is over, by what its cluster says and by time."""

from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.inference.prefetches.prefetch import FAILED, LONGEST_SECONDS, READY, Prefetch, ended

BEGUN = 1000.0
PREFETCH = Prefetch(
    id="pre-1", organization_id="org", project_id="proj", owner_id="proj", model="m",
    version_id="mv-1", cluster_id="cl-1", bytes=1, generation=3, created_at=BEGUN,
)  # fmt: skip


def status(phase: Any, *, generation: int = 3, message: str = "") -> pb.WorkloadStatus:
    return pb.WorkloadStatus(generation=generation, phase=phase, message=message)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (None, None),
        (status(pb.PHASE_STARTING), None),
        (status(pb.PHASE_SUCCEEDED), (READY, "")),
        # Of files that nobody asks for any more.
        (status(pb.PHASE_SUCCEEDED, generation=2), None),
        (status(pb.PHASE_FAILED, message="no room"), (FAILED, "no room")),
        (status(pb.PHASE_STOPPED), (FAILED, "The cluster ended it.")),
    ],
)
def test_the_cluster_says_so(said: pb.WorkloadStatus | None, expected: Any) -> None:
    assert ended(PREFETCH, said, BEGUN, is_permitted=True) == expected


def test_a_cluster_that_says_nothing_has_a_day() -> None:
    late = BEGUN + LONGEST_SECONDS + 1
    assert ended(PREFETCH, None, late - 2, is_permitted=True) is None
    silent = (FAILED, "The cluster did not bring the files within a day.")
    assert ended(PREFETCH, None, late, is_permitted=True) == silent
    downloading = status(pb.PHASE_STARTING, message="Downloading")
    slow = ended(PREFETCH, downloading, late, is_permitted=True)
    assert slow == (FAILED, "The cluster did not bring the files within a day: Downloading")


def test_a_cluster_that_may_not_have_the_model_any_more_ends_it() -> None:
    end = ended(PREFETCH, status(pb.PHASE_STARTING), BEGUN, is_permitted=False)
    assert end == (FAILED, "The cluster runs engines of the model's project no more.")
