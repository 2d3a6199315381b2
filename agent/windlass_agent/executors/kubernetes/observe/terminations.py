"""Diagnosis of terminated pods and of what their ends mean for the attempt. Pure."""

import re

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.quantities import units
from windlass_agent.executors.exits import Exit, read_exit
from windlass_agent.executors.kubernetes.observe.diagnosis import (
    Diagnosis,
    failure,
    sentence,
    unstartable,
)
from windlass_agent.executors.kubernetes.observe.snapshot import (
    AttemptSnapshot,
    Container,
    PodSnapshot,
)
from windlass_agent.machine.program_output import last_error
from windlass_agent.memory import in_units

REFUSED_STATUS = 3
_KILLED = (137, 143)
_UNSTARTED = frozenset({"StartError", "ContainerCannotRun"})
# The job's own appetite for disk; all else that evicts is the node's trouble.
_DISK = re.compile(r"exceeds the (total )?limit|exceeded its local ephemeral")


def lost(snapshot: AttemptSnapshot) -> Diagnosis | None:
    """Diagnosis of an attempt that lost pods with a node."""
    for pod in snapshot.pods:
        if snapshot.is_lost(pod):
            return failure("NodeLost", f"Node {pod.node} stopped answering.")
    return None


def failed(snapshot: AttemptSnapshot) -> Diagnosis | None:
    """Returns why the object that the attempt stands or falls with has failed; None if it has
    not.
    """
    condition = snapshot.root.failed if snapshot.root is not None else None
    if condition is None:
        return None
    if condition.reason == "DeadlineExceeded":
        return failure(
            "DeadlineExceeded",
            "The job ran longer than this cluster allows. Ask for fewer steps, or have the "
            "operator raise the limit.",
        )
    pods = [pod for pod in snapshot.pods if pod.phase == "Failed" or pod.disruption is not None]
    if not pods and any(not pod.deleting and not pod.ended for pod in snapshot.pods):
        # Of its pods we hear on another line, which is behind.
        return None
    if not pods:
        gone = "The job's pod was deleted before it had ended."
        return failure("Evicted", f"{gone} {sentence(condition.message)}")
    # The first to fail brought the others down.
    return min((_death(pod) for pod in sorted(pods, key=_ended_at)), key=_is_consequence)


def _of_exit(left: Exit) -> Diagnosis:
    return Diagnosis(phase=left.phase, reason=left.error_code, message=left.error_message)


def _ended_at(pod: PodSnapshot) -> tuple[str, int]:
    return (pod.runner.finished_at if pod.runner is not None else "") or "9", pod.rank


def _is_consequence(found: Diagnosis) -> bool:
    """Returns True if a pod ended only because another one failed."""
    return found.reason == "ProcessKilled" or found.phase == pb.PHASE_STOPPED


def _death(pod: PodSnapshot) -> Diagnosis:
    """Returns why a pod failed."""
    runner = pod.runner if pod.runner is not None and pod.runner.state == "terminated" else None
    left = read_exit(runner.message) if runner is not None else None
    word = _of_exit(left) if left is not None else None
    # A stopped runner does not know the reason.
    if word is not None and word.phase != pb.PHASE_STOPPED:
        return word
    if runner is not None and runner.reason == "OOMKilled":
        limit = units(pod.memory_limit)
        had = f"the {in_units(limit)} that it may use" if limit else "it may use"
        return failure(
            "OutOfMemory",
            f"The job needed more memory than {had}. Ask for more memory per node, or take "
            "a smaller batch size or a smaller model.",
        )
    if found := _disrupted(pod) or word:
        return found
    if runner is not None:
        return _exited(pod, runner)
    if pod.blocked is not None:
        said = pod.blocked.message or f"a container ended with {pod.blocked.exit_code}."
        return unstartable(said, failed=True)
    said = sentence(pod.message or pod.reason or "no reason was given")
    return failure("Evicted", f"The pod failed: {said}")


def _disrupted(pod: PodSnapshot) -> Diagnosis | None:
    """Diagnosis of a pod that was ended from outside."""
    said = sentence(pod.message or (pod.disruption.message if pod.disruption else ""))
    if pod.reason == "Evicted" and _DISK.search(said):
        return failure(
            "StorageExceeded",
            f"The job needed more disk than it may use: {said} Keep fewer checkpoints or take a "
            "smaller model, or have the operator raise the limit.",
        )
    match pod.disruption.reason if pod.disruption else "":
        case "PreemptionByScheduler":
            return failure("Preempted", f"Another pod preempted it. {said}".strip())
        case "DeletionByPodGC":
            return failure("NodeLost", f"Node {pod.node} is gone.")
        case "":
            pass
        case _:
            return failure("Evicted", f"Node {pod.node} ended the job: {said}")
    if pod.reason:
        return failure("Evicted", f"Node {pod.node} evicted the job: {said or pod.reason}")
    return None


def _exited(pod: PodSnapshot, runner: Container) -> Diagnosis:
    if runner.reason in _UNSTARTED:
        return unstartable(runner.message, failed=True)
    if runner.exit_code == REFUSED_STATUS:
        return failure("RunnerLost", "The agent rejected the runner's token, so the runner exited.")
    if runner.exit_code in _KILLED:
        return failure("ProcessKilled", f"The runner was killed with code {runner.exit_code}.")
    # The end of its log, where it left no result. Its tenant can read the whole of it.
    error = last_error(runner.message)
    last = f" Its last output: {error}" if error else ""
    where = f" on rank {pod.rank}" if pod.rank else ""
    code = runner.exit_code
    return failure("ProcessExited", f"The runner ended{where} with {code} and no result.{last}")
