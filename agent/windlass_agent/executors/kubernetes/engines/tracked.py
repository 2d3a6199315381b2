"""One engine as it should be and as it is: what is due, and what is told of it. No I/O."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.core.backoff import Backoff
from windlass.workload_phases import TERMINAL_PHASES
from windlass_agent.engines.load import EngineLoad, load_of
from windlass_agent.engines.metering import SteppedLoad
from windlass_agent.executors.kubernetes.engines.diagnosis import LAUNCHING, diagnose
from windlass_agent.executors.kubernetes.engines.ends import EngineEnds, ServingGroup, UnreadEnds
from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot
from windlass_agent.executors.kubernetes.observe.diagnosis import Diagnosis, failure
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot
from windlass_agent.executors.kubernetes.render.engine_plan import digest
from windlass_agent.executors.kubernetes.settings import Patience

# What was made and is not shown by then is made again.
UNSEEN_SECONDS = 10.0


class Due(Enum):
    """The next step of an engine."""

    NOTHING = auto()
    APPLY = auto()
    DELETE = auto()


@dataclass(eq=False)
class TrackedEngine:
    """Desired and actual state of an engine; times are monotonic seconds."""

    workload: pb.Workload
    # Whether this life of the agent was told what it should be.
    told: bool = False
    snapshot: EngineSnapshot = field(default_factory=EngineSnapshot)
    state: keeper_pb2.EngineState | None = None
    diagnosis: Diagnosis = LAUNCHING
    # Why this generation does not run, once that is certain.
    failure: Diagnosis | None = None
    # When it was made and deleted, until the cluster shows it; 0 otherwise.
    made_at: float = 0.0
    deleted_at: float = 0.0
    # Whether a call may have made it that nobody has answered.
    may_exist: bool = False
    # Whether a pod other than the first still fetches.
    awaits_weights: bool = False
    working: bool = False
    nudged: asyncio.Event = field(default_factory=asyncio.Event)
    backoff: Backoff = field(default_factory=partial(Backoff, shortest=0.5, longest=8.0))
    # Of what it keeps from its start to its end; empty before this life was told.
    digest: str = ""
    # What to do about too little memory, since a log of an end said so; empty if none has.
    lack: str = ""
    _unread: UnreadEnds = field(default_factory=UnreadEnds)
    _ends: EngineEnds = field(default_factory=EngineEnds)
    _group: ServingGroup = field(default_factory=ServingGroup)
    # What may pass by itself, its patience, and since when it has lasted.
    _trouble: tuple[str, str, float] = ("", "", 0.0)
    _load: SteppedLoad = field(default_factory=SteppedLoad)

    @property
    def is_wanted(self) -> bool:
        """True if it should run and may."""
        return self.workload.desired == pb.DESIRED_STATE_RUNNING and self.failure is None

    @property
    def is_gone(self) -> bool:
        """True if nothing of it is left, and none wants it."""
        deleted = self.told and self.workload.desired == pb.DESIRED_STATE_DELETED
        return self.snapshot.is_gone and not self._may_come and (deleted or not self.told)

    @property
    def _may_come(self) -> bool:
        return self.made_at > 0 or self.may_exist

    @property
    def broken(self) -> bool:
        """True if one of its pods is gone, so that what is open in the first is not answered."""
        return self.snapshot.broken is not None or self._group.broken

    @property
    def serves(self) -> bool:
        """True if requests can be sent to it."""
        kind = self.workload.WhichOneof("spec")
        return self._is_up and kind not in ("prefetch", "lease")

    @property
    def has_weights(self) -> bool:
        """True if its one pod has all files of its model."""
        return self._is_up and self.workload.engine.nodes <= 1

    @property
    def _is_up(self) -> bool:
        return self.is_wanted and self.diagnosis.phase == pb.PHASE_RUNNING

    @property
    def load(self) -> EngineLoad | None:
        """The load that its keeper says; None before it has said so."""
        if self.state is None or not self.state.HasField("load"):
            return None
        return load_of(self.state.load)

    def want(self, workload: pb.Workload) -> None:
        """Takes what it should be; a newer generation begins anew what has failed."""
        if workload.generation < self.workload.generation and self.told:
            return
        if self.failure is not None and workload.generation > self.workload.generation:
            self.failure, self._trouble = None, ("", "", 0.0)
            self.diagnosis = LAUNCHING
        if workload.WhichOneof("spec"):
            self.workload = workload
        else:
            self.workload.desired = workload.desired
            self.workload.generation = workload.generation
        self.told = True
        # Once, since specs are long and this is looked at often.
        before, self.digest = self.digest, digest(self.workload)
        if self.digest != before:
            self.lack = ""
        self.nudged.set()

    def see(
        self,
        snapshot: EngineSnapshot,
        state: keeper_pb2.EngineState | None,
        *,
        clock: float,
        patience: Patience,
        gpu: float | None = None,
    ) -> None:
        """Takes what the cluster shows, what its pod's keeper says, and how busy its GPUs are."""
        self.snapshot, self.state = snapshot, state
        if snapshot.root is not None:
            self.made_at, self.may_exist = 0.0, False
        else:
            self.deleted_at = 0.0
        serves = state is not None and _runs(state)
        if serves:
            self.lack = ""
        self._group.look(snapshot, serves=serves)
        leaves = snapshot.root is not None and snapshot.root.deleting
        if self.is_wanted and not leaves and not (snapshot.root is None and self._trouble[1]):
            ended = self._ends.look(snapshot, serves=serves)
            found = diagnose(snapshot, state, ended=ended, broken=self.broken, lack=self.lack)
            self.find(found, clock=clock, patience=patience)
        self._load.take(clock, *((self.load, gpu) if self.serves else (None, None)))

    def unread_ends(self) -> list[PodSnapshot]:
        """The pods in which it ended while it does not serve; each end's log is to be read once."""
        may_say = self.told and self.is_wanted and self.workload.HasField("engine")
        return self._unread.take(self.snapshot.pods) if may_say and not self.serves else []

    def find(self, found: Diagnosis, *, clock: float, patience: Patience) -> None:
        """Takes a diagnosis; one that outlasts its patience becomes a failure."""
        reason, kind, since = self._trouble
        if (found.reason, found.patience) != (reason, kind):
            self._trouble = found.reason, found.patience, (since := clock)
        if found.patience and clock - since >= patience.of(found.patience):
            found = failure(found.reason, found.message)
        self.diagnosis = found
        if found.phase in TERMINAL_PHASES:
            self.failure = found

    def due(self, clock: float) -> Due:
        """The next step; NOTHING while an earlier one has yet to show."""
        root = self.snapshot.root
        if not self.told or (root is not None and root.deleting):
            return Due.NOTHING
        unseen = self.made_at > 0 and clock - self.made_at < UNSEEN_SECONDS
        if self.deleted_at > 0 and clock - self.deleted_at < UNSEEN_SECONDS:
            return Due.NOTHING
        if not self.is_wanted:
            return Due.DELETE if root is not None or self._may_come else Due.NOTHING
        if root is None:
            waits = unseen or bool(self.snapshot.pods)
            return Due.NOTHING if waits else Due.APPLY
        # Whatever lasts has changed: nothing of the old one stays.
        return Due.NOTHING if root.digest == self.digest else Due.DELETE

    def status(self) -> pb.WorkloadStatus:
        """The status for the control plane."""
        status = pb.WorkloadStatus(
            workload_id=self.workload.id, generation=self.workload.generation
        )
        if self.workload.desired != pb.DESIRED_STATE_RUNNING:
            left = self._may_come or not self.snapshot.is_gone
            status.phase = pb.PHASE_STOPPING if left else pb.PHASE_STOPPED
            return status
        found = self.failure or self.diagnosis
        status.phase, status.reason, status.message = found.phase, found.reason, found.message
        if self.snapshot.root is not None:
            status.queue = self.snapshot.root.queue
        if found.phase == pb.PHASE_RUNNING and self.workload.HasField("prefetch"):
            # Its keeper has brought the files, and waits to be removed.
            status.phase = pb.PHASE_SUCCEEDED
        if found.phase == pb.PHASE_PENDING:
            status.queue_position = self.snapshot.position
        pod = self.snapshot.pod
        if self.serves and pod is not None and self.state is not None:
            # No address that anybody connects to: the way is the tunnel.
            status.endpoint = f"pod://{pod.namespace}/{pod.name}"
            status.capabilities.CopyFrom(self.state.capabilities)
            status.adapters.extend(self.state.adapters)
            status.weights_error = self.state.weights_error
            if load := self._load.message():
                status.load.CopyFrom(load)
        return status


def _runs(state: keeper_pb2.EngineState) -> bool:
    return state.phase == pb.PHASE_RUNNING
