"""Status reports of workloads, whatever happens during a report."""

from collections.abc import Sequence

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.statuses import BATCH_BYTES, StatusBook


class Shown:
    """An executor, as far as a book asks it."""

    def __init__(self) -> None:
        self.shown: list[pb.WorkloadStatus] = []

    def statuses(self) -> Sequence[pb.WorkloadStatus]:
        return self.shown


def test_the_end_of_what_went_while_it_was_told_of_is_told_too() -> None:
    executor = Shown()
    book = StatusBook(executor)  # type: ignore[arg-type]  # a stub of an executor
    deleted = pb.Workload(id="ftjob-1", generation=2, desired=pb.DESIRED_STATE_DELETED)
    book.take(pb.WorkloadsDelta(workloads=[deleted]))
    executor.shown = [
        pb.WorkloadStatus(workload_id="ftjob-1", generation=2, phase=pb.PHASE_STOPPING)
    ]
    under_way = book.unreported()
    executor.shown = []
    book.reported(under_way)
    (end,) = book.unreported()
    assert (end.phase, end.reason) == (pb.PHASE_STOPPED, "Deleted")
    book.reported([end])
    assert not book.unreported()
    assert not book.wanted


def test_a_report_is_bounded_by_its_bytes_too() -> None:
    executor = Shown()
    book = StatusBook(executor)  # type: ignore[arg-type]  # a stub of an executor
    names = [f"eng-{number}" for number in range(9)]
    workloads = [
        pb.Workload(id=name, generation=1, desired=pb.DESIRED_STATE_RUNNING) for name in names
    ]
    book.take(pb.WorkloadsDelta(workloads=workloads))
    executor.shown = [
        pb.WorkloadStatus(workload_id=name, generation=1, message="x" * 2**20) for name in names
    ]
    told: list[str] = []
    while batch := book.unreported():
        assert sum(status.ByteSize() for status in batch) <= BATCH_BYTES
        told += [status.workload_id for status in batch]
        book.reported(batch)
    assert sorted(told) == names
