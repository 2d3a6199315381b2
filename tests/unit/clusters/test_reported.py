"""What agents report, held to what can be."""

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain.reported import MAX_SENTENCE, bound_load, bound_texts


@pytest.mark.parametrize(
    ("phase", "said", "known"),
    [
        (pb.PHASE_RUNNING, 0, True),
        (pb.PHASE_RUNNING, 100, True),
        (pb.PHASE_RUNNING, 101, False),
        (pb.PHASE_RUNNING, -1, False),
        (pb.PHASE_RUNNING, 2**31 - 1, False),
        (pb.PHASE_STARTING, 50, False),
    ],
)
def test_a_load_that_cannot_be_is_not_known(
    phase: "pb.Phase.ValueType", said: int, known: bool
) -> None:
    status = pb.WorkloadStatus(phase=phase, load=pb.ServingLoad(cache_percent=said))
    bound_load(status)
    assert status.HasField("load") == known
    assert status.load.cache_percent == (said if known else 0)


@pytest.mark.parametrize("name", ["gpu_percent", "wait_seconds", "requests_at_once"])
@pytest.mark.parametrize("wrong", [-1, 2**31 - 1])
def test_a_load_with_one_number_that_cannot_be_is_not_known(name: str, wrong: int) -> None:
    load = pb.ServingLoad(cache_percent=50)
    setattr(load, name, 100)
    status = pb.WorkloadStatus(phase=pb.PHASE_RUNNING, load=load)
    bound_load(status)
    assert status.load == load
    setattr(status.load, name, wrong)
    bound_load(status)
    assert not status.HasField("load")


def test_what_is_not_said_stays_so() -> None:
    status = pb.WorkloadStatus(phase=pb.PHASE_RUNNING)
    bound_load(status)
    assert status == pb.WorkloadStatus(phase=pb.PHASE_RUNNING)


def test_texts_are_what_a_column_holds() -> None:
    status = pb.WorkloadStatus(message="a\0" * MAX_SENTENCE)
    bound_texts(status)
    assert status.message == "a\N{REPLACEMENT CHARACTER}" * (MAX_SENTENCE // 2)
