"""The driver's state of one attempt: snapshot, diagnosis and outcome. No I/O."""

from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.workload_phases import TERMINAL_PHASES
from windlass_agent.executors.exits import Exit, read_exit
from windlass_agent.executors.kubernetes.observe.diagnosis import Diagnosis, failure, waits
from windlass_agent.executors.kubernetes.observe.failures import diagnose
from windlass_agent.executors.kubernetes.observe.snapshot import AttemptSnapshot, Key
from windlass_agent.executors.kubernetes.settings import Patience
from windlass_agent.reconcile import Actual

MAX_OBSERVATIONS = 16
# What was made and is not shown by then is asked for.
UNSEEN_SECONDS = 10.0
LAUNCHING = waits("Launching", "The job is being submitted to the cluster.")
_GONE = failure("Evicted", "The job's objects were deleted from the cluster by somebody else.")
_STOPPED = Diagnosis(phase=pb.PHASE_STOPPED)
# How an attempt ends that is asked to.
_ASKED = frozenset({"Evicted", "ProcessKilled"})


class AttemptState:
    """State of an attempt, made before its objects or from objects of an earlier agent process."""

    def __init__(self, key: Key, *, job_id: str, patience: Patience):
        self.key = key
        self.run = jobs_pb2.Run(job_id=job_id, attempt=key.attempt)
        self._patience = patience
        self.snapshot: AttemptSnapshot | None = None
        # Of the object that it stands or falls with, once it may have been made in this life.
        self.path = ""
        # Of what goes with it and does not belong to it yet.
        self.unowned: list[str] = []
        # When all of it was made in this life, monotonic; 0 for not yet.
        self.launched_at = 0.0
        # Whether the cluster has shown it; until then it may merely not have heard of it.
        self.seen = False
        # Jobs knows a newer attempt.
        self.superseded = False
        # Whether it was asked to end, gracefully and at once.
        self.stopping = False
        self.killing = False
        self.diagnosis = LAUNCHING
        # How it ends, once that is certain; and once nothing of it is left.
        self.verdict: Diagnosis | None = None
        self.ended: Diagnosis | None = None
        self.exit: Exit | None = None
        # What may pass by itself and how long it may last, and since when it has.
        self._trouble = ("", "", 0.0)
        self._observed: dict[str, pb.Observation] = {}

    @property
    def over(self) -> bool:
        """True if the attempt has an outcome and nothing of it runs."""
        return self.verdict is not None and not self.alive

    @property
    def alive(self) -> bool:
        """True if something of the attempt may be running or about to start."""
        if self.snapshot is not None:
            return self.snapshot.alive
        return self.launched_at > 0 and not self.seen

    @property
    def is_to_end(self) -> bool:
        """True if something of the attempt runs that should be ended.

        What ends by itself is left there: until the control plane knows how it ended, its
        objects alone tell so, also to the agent's next life.
        """
        concluding = self.snapshot is not None and self.snapshot.concluding
        return self.verdict is not None and self.alive and not self.stopping and not concluding

    @property
    def is_to_launch(self) -> bool:
        """True if objects of the attempt may be missing."""
        ending = self.stopping or self.killing or self.verdict is not None
        return not ending and not self.launched_at

    def is_unseen(self, clock: float) -> bool:
        """Returns True if the informers should have shown the attempt by now."""
        return self.launched_at > 0 and not self.seen and clock - self.launched_at > UNSEEN_SECONDS

    @property
    def generation(self) -> int:
        """Generation of the desired state that the attempt was made for."""
        root = self.snapshot.root if self.snapshot is not None else None
        return root.generation if root is not None else 0

    def take_over(self, snapshot: AttemptSnapshot) -> None:
        """Takes over an attempt of an earlier agent process; objects being deleted were stopped."""
        self.snapshot = snapshot
        self.stopping = snapshot.root is None or snapshot.root.deleting
        self.run.job_id = (
            snapshot.root.job_id if snapshot.root is not None else snapshot.pods[0].job_id
        )

    def actual(self) -> Actual:
        """The observed state, for the decision on it."""
        return Actual(
            attempt=self.key.attempt,
            alive=self.ended is None,
            # Asking once more would change nothing.
            stopping=self.stopping or self.verdict is not None,
            killing=self.killing or self.over,
        )

    def see(self, snapshot: AttemptSnapshot | None, *, clock: float, now_ms: int) -> None:
        """Updates the snapshot of the cluster; `clock` is monotonic, in seconds."""
        self.snapshot = snapshot
        if snapshot is None:
            if self.seen and self.verdict is None:
                self._conclude(_STOPPED if self.stopping or self.killing else _GONE)
            return
        self.seen = True
        self._read_exit(snapshot)
        if self.verdict is None:
            self.find(diagnose(snapshot), clock=clock, now_ms=now_ms)
        self._observe_admission(snapshot, now_ms)

    def find(self, diagnosis: Diagnosis, *, clock: float, now_ms: int) -> None:
        """Updates the diagnosis; one that outlasts its patience becomes a failure."""
        reason, patience, since = self._trouble
        if (diagnosis.reason, diagnosis.patience) != (reason, patience):
            self._trouble = diagnosis.reason, diagnosis.patience, (since := clock)
        if diagnosis.patience:
            self._observe(diagnosis.reason, now_ms, diagnosis.message, warning=True)
            if clock - since >= self._patience.of(diagnosis.patience):
                diagnosis = failure(diagnosis.reason, diagnosis.message)
        self.diagnosis = diagnosis
        if diagnosis.phase in TERMINAL_PHASES:
            self._conclude(diagnosis)

    @property
    def deadline(self) -> float:
        """Returns when its diagnosis becomes a failure if it lasts; infinite when never."""
        if self.verdict is not None or not self.diagnosis.patience:
            return float("inf")
        return self._trouble[-1] + self._patience.of(self.diagnosis.patience)

    def withdrawn(self) -> None:
        """Ends an attempt that was stopped before the cluster showed any of its objects."""
        self.launched_at = 0.0
        if self.verdict is None:
            self._conclude(replace(_STOPPED, reason="NeverStarted"))

    def vanished(self) -> None:
        """Ends an attempt whose objects were created and are gone."""
        if not self.seen and self.verdict is None:
            self.launched_at = 0.0
            self._conclude(_GONE)

    def status(self) -> pb.WorkloadStatus:
        """The status for the control plane; id and generation are the caller's to fill."""
        found = self.ended or self.diagnosis
        if self.ended is None and (self.verdict is not None or self.stopping or self.killing):
            found = replace(self.verdict or self.diagnosis, phase=pb.PHASE_STOPPING)
        root = self.snapshot.root if self.snapshot is not None else None
        waiting = found.phase == pb.PHASE_PENDING
        return pb.WorkloadStatus(
            phase=found.phase,
            reason=found.reason,
            message=found.message,
            queue=root.queue if root is not None else "",
            queue_position=self.snapshot.position if self.snapshot is not None and waiting else 0,
            observations=list(self._observed.values())[-MAX_OBSERVATIONS:],
        )

    def _conclude(self, found: Diagnosis) -> None:
        stopped = found.phase == pb.PHASE_STOPPED or found.reason in _ASKED
        if self.exit is not None and stopped:
            found = Diagnosis(
                phase=self.exit.phase,
                reason=self.exit.error_code,
                message=self.exit.error_message,
            )
        elif stopped and (self.stopping or self.killing):
            found = replace(_STOPPED, reason="" if found.reason in _ASKED else found.reason)
        self.verdict = found

    def _read_exit(self, snapshot: AttemptSnapshot) -> None:
        pod = snapshot.pod_of(0)
        if pod is not None and pod.runner is not None and pod.runner.state == "terminated":
            self.exit = read_exit(pod.runner.message) or self.exit
        if self.exit is not None and self.verdict is not None and self.ended is None:
            # The end was certain before its runner had said how it took it.
            self._conclude(self.verdict)

    def _observe_admission(self, snapshot: AttemptSnapshot, now_ms: int) -> None:
        """Records Kueue's decisions, in the order in which it makes them."""
        admission = snapshot.admission
        if admission is None:
            return
        queue = admission.queue
        if admission.waiting is not None and "queued" not in self._kinds:
            said = f" {admission.waiting.message}" if admission.waiting.message else ""
            self._observe("queued", now_ms, f"Queued in {queue}.{said}")
        if admission.quota_reserved:
            where = f"{admission.cluster_queue}" + (
                f" ({flavors})"
                if (flavors := ", ".join(sorted(set(admission.flavors.values()))))
                else ""
            )
            self._observe("reserved", now_ms, f"Quota reserved in {where}")
        if admission.admitted:
            self._observe("admitted", now_ms, f"Admitted from queue {queue}")
        if (evicted := admission.evicted) is not None:
            word = evicted.reason or "Evicted"
            self._observe(word, now_ms, f"Evicted by Kueue: {evicted.message}", warning=True)

    @property
    def _kinds(self) -> set[str]:
        return {key.partition("/")[2] for key in self._observed}

    def _observe(self, kind: str, now_ms: int, message: str, *, warning: bool = False) -> None:
        key = f"{self.key.attempt}/{kind}"
        if key not in self._observed:
            self._observed[key] = pb.Observation(
                key=key, at_ms=now_ms, warning=warning, message=message
            )
