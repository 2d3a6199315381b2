"""Ends of an engine by itself, counted by what its pods show. No I/O."""

from collections.abc import Iterable

from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot

# Reasons of the runtime for a container that never ran, and for one that needed too much.
UNSTARTED = frozenset({"StartError", "ContainerCannotRun"})
TELLING = UNSTARTED | {"OOMKilled"}
# An engine that has ended so often without serving has failed.
ENDS = 2


class EngineEnds:
    """The ends of one engine since it served, or since this life of the agent saw it first."""

    def __init__(self) -> None:
        # Pod, and how often its container had ended when it served last.
        self._served = ("", 0)
        # First pods of groups that broke, which are made anew, each with the pod that ended.
        self._groups: dict[str, PodSnapshot] = {}
        # The first pod that was last seen to leave while none had ended: the others end with it.
        self._left = ""

    def look(self, snapshot: EngineSnapshot, *, serves: bool) -> PodSnapshot | None:
        """The pod in which it ended once too often; None while it has not."""
        if serves:
            self._groups.clear()
        if snapshot.is_grouped:
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
        leader, broken = snapshot.leader, snapshot.broken
        if leader is not None and broken is None and leader.deleting:
            self._left = leader.uid
        if leader is not None and broken is not None and leader.uid != self._left:
            self._groups[leader.uid] = broken
        return next(reversed(self._groups.values())) if len(self._groups) >= ENDS else None


class UnreadEnds:
    """Ends of an engine whose log may say more than its pods do, each of which is told once."""

    def __init__(self) -> None:
        self._known = set[tuple[str, int, bool]]()

    def take(self, pods: Iterable[PodSnapshot]) -> list[PodSnapshot]:
        """The pods with an end that was not told before."""
        ends = {(pod.uid, pod.restarts, pod.has_stopped): pod for pod in pods if _is_vague(pod)}
        fresh = [pod for end, pod in ends.items() if end not in self._known]
        self._known = set(ends)
        return fresh


def _is_vague(pod: PodSnapshot) -> bool:
    """Returns True if an engine ended with an error that only its log explains."""
    last = pod.latest_end
    return last is not None and bool(last.exit_code) and last.reason not in TELLING


class ServingGroup:
    """The pods that an engine on several nodes serves with."""

    def __init__(self) -> None:
        self._leader, self._uids = "", frozenset[str]()
        # True if one of them is gone while the first stays: no other can take its place.
        self.broken = False

    def look(self, snapshot: EngineSnapshot, *, serves: bool) -> None:
        """Takes what the cluster shows, and whether its keeper says that it serves."""
        leader = snapshot.leader
        if not snapshot.is_grouped or leader is None or leader.uid != self._leader:
            self._leader, self._uids = leader.uid if leader is not None else "", frozenset()
        if serves and not self._uids and snapshot.is_grouped and snapshot.is_whole:
            self._uids = frozenset(pod.uid for pod in snapshot.live)
        left = (pod for pod in snapshot.members if not pod.ended)
        # One that leaves waits for what is open in the first; on a node that is lost it cannot.
        there = {pod.uid for pod in left if not (pod.deleting and pod.node in snapshot.lost)}
        self.broken = not self._uids <= there
