"""Ends of an engine by itself, counted by what its pods show. No I/O."""

from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot

# An engine that has ended so often without serving has failed.
ENDS = 2


class EngineEnds:
    """The ends of one engine since it served, or since this life of the agent saw it first."""

    def __init__(self) -> None:
        # Pod, and how often its container had ended when it served last.
        self._served = ("", 0)
        # First pods of groups that broke, which are made anew, each with the pod that ended.
        self._groups: dict[str, PodSnapshot] = {}

    def look(self, snapshot: EngineSnapshot, *, serves: bool) -> PodSnapshot | None:
        """The pod in which it ended once too often; None while it has not."""
        if serves:
            self._groups.clear()
        if snapshot.root is not None and snapshot.root.nodes > 1:
            return self._of_group(snapshot)
        pod = snapshot.pod
        if pod is None:
            return None
        uid, known = self._served
        if uid != pod.uid or serves:
            known = pod.restarts
        self._served = pod.uid, known
        return pod if pod.restarts - known >= ENDS else None

    def _of_group(self, snapshot: EngineSnapshot) -> PodSnapshot | None:
        leader = next((pod for pod in snapshot.pods if pod.rank == 0), None)
        if leader is not None and (broken := snapshot.broken):
            self._groups[leader.uid] = broken
        return next(reversed(self._groups.values())) if len(self._groups) >= ENDS else None
