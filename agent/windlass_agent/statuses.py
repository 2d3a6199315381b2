"""Bookkeeping of desired workloads and reported statuses: what to apply and report. No I/O."""

from collections.abc import Iterable, Mapping, Sequence

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.port import Executor

BATCH = 200
# Of one report, below what a message may have.
BATCH_BYTES = 4 * 2**20


class StatusBook:
    """The desired workloads in memory, and the last status of each that was taken."""

    def __init__(self, executor: Executor):
        self._executor = executor
        self._desired: dict[str, pb.Workload] = {}
        # As it was told, by workload.
        self._told: dict[str, pb.WorkloadStatus] = {}

    @property
    def wanted(self) -> Mapping[str, pb.Workload]:
        """Every workload that the control plane has told of, by id."""
        return self._desired

    def take(self, delta: pb.WorkloadsDelta) -> Sequence[pb.Workload]:
        """Stores a delta and returns the workloads to apply; a snapshot deletes what it omits."""
        workloads = list(delta.workloads)
        if delta.snapshot:
            listed = {workload.id for workload in workloads}
            known = self._executor.statuses()
            gone = [status for status in known if status.workload_id not in listed]
            self._desired, self._told = {}, {}
            workloads += self.tombstones(gone)
        for workload in delta.workloads:
            self._desired[workload.id] = workload
            # Whatever was told concerned what was wanted before.
            self._told.pop(workload.id, None)
        return workloads

    @staticmethod
    def tombstones(statuses: Iterable[pb.WorkloadStatus]) -> list[pb.Workload]:
        """The wish that these workloads be gone."""
        return [
            pb.Workload(
                id=status.workload_id,
                generation=status.generation,
                desired=pb.DESIRED_STATE_DELETED,
            )
            for status in statuses
        ]

    def unreported(self) -> list[pb.WorkloadStatus]:
        """Statuses that differ from what was told, the latest of each alone, in a batch."""
        found = {status.workload_id: status for status in self._executor.statuses()}
        for workload in self._desired.values():
            # A driver stops naming what was deleted once nothing of it runs.
            if workload.desired == pb.DESIRED_STATE_DELETED and workload.id not in found:
                found[workload.id] = pb.WorkloadStatus(
                    workload_id=workload.id,
                    generation=workload.generation,
                    phase=pb.PHASE_STOPPED,
                    reason="Deleted",
                )
        news = [
            status
            for status in found.values()
            if status.workload_id in self._desired and not self._is_told(status)
        ]
        return _within(news[:BATCH])

    def _is_told(self, status: pb.WorkloadStatus) -> bool:
        told = self._told.get(status.workload_id)
        return told is status or told == status

    def reported(self, statuses: Iterable[pb.WorkloadStatus]) -> None:
        """Notes what was told; forgets what was deleted and is known to be gone."""
        alive = {status.workload_id for status in self._executor.statuses()}
        for status in statuses:
            workload = self._desired.get(status.workload_id)
            if workload is None or workload.generation != status.generation:
                continue
            self._told[status.workload_id] = status
            # What was told may be what it was before it went; then its end is yet to be told.
            gone = status.phase == pb.PHASE_STOPPED and workload.id not in alive
            if workload.desired == pb.DESIRED_STATE_DELETED and gone:
                del self._desired[workload.id], self._told[workload.id]


def _within(statuses: list[pb.WorkloadStatus]) -> list[pb.WorkloadStatus]:
    """The first of these, as many as fit into a report; at least one."""
    size = 0
    found: list[pb.WorkloadStatus] = []
    for status in statuses:
        size += status.ByteSize()
        if found and size > BATCH_BYTES:
            break
        found.append(status)
    return found
