"""Diagnosis of an engine from its objects and its keeper's word. Pure."""

import re
from collections.abc import Sequence

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.kubernetes.quantities import units
from windlass_agent.executors.kubernetes.engines.ends import TELLING, UNSTARTED
from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot
from windlass_agent.executors.kubernetes.observe import failures, refusals
from windlass_agent.executors.kubernetes.observe.diagnosis import (
    Diagnosis,
    failure,
    sentence,
    starts,
    waits,
)
from windlass_agent.executors.kubernetes.observe.snapshot import (
    AttemptSnapshot,
    Container,
    PodSnapshot,
)
from windlass_agent.kueue.workload import Workload
from windlass_agent.memory import in_units

# Kueue's words for a resource of a flavor, and for one that no waiting would help.
_LACK, _BEYOND = re.compile("insufficient"), re.compile(r"> maximum capacity \(")
# Keepers' reasons while weights are brought.
DOWNLOAD, _DOWNLOADS = "DownloadFailed", "Downloading"
LAUNCHING = waits("Launching", "The engine is being submitted to the cluster.")
_STARTING = Diagnosis(phase=pb.PHASE_STARTING, reason="Starting")


def awaits_weights(states: Sequence[keeper_pb2.EngineState | None]) -> bool:
    """Returns True if a pod other than the first has no weights yet, by its keeper's word."""
    fetching = (None, _DOWNLOADS, DOWNLOAD)
    return any((one and one.reason) in fetching for one in states[1:])


def said(states: Sequence[keeper_pb2.EngineState | None]) -> keeper_pb2.EngineState | None:
    """The word that counts of the keepers of all pods, that of the first pod being the first."""
    first, *others = states
    if first is None or first.phase == pb.PHASE_RUNNING or not awaits_weights(states):
        return first
    # The first cannot start before: what it says of its start is not its fault.
    fetching = sorted((one for one in others if one), key=lambda one: one.reason != DOWNLOAD)
    return next((one for one in fetching if one.reason in (DOWNLOAD, _DOWNLOADS)), None)


def diagnose(
    snapshot: EngineSnapshot,
    state: keeper_pb2.EngineState | None,
    *,
    ended: PodSnapshot | None,
    broken: bool,
    lack: str = "",
) -> Diagnosis:
    """The diagnosis of an engine that should run; `state` is its keeper's, None without one.

    `ended` is the pod in which it ended once too often since it served last, None if it did not.
    `lack` is what to do about the memory that it found too little, as its log said; empty if not.
    Nothing is sent to one on several nodes that is `broken`: its first pod alone cannot answer.
    """
    root, pod, live = snapshot.root, snapshot.pod, snapshot.live
    if root is None:
        return LAUNCHING
    if len(live) < root.nodes:
        view = AttemptSnapshot(events=snapshot.events, short=snapshot.short)
        if found := refusals.noted(view, []):
            return found
    if pod is None:
        return refusals.refused(root.refusal) if root.refusal else LAUNCHING
    admission = snapshot.admission
    if root.queue and (admission is None or not admission.admitted) and not pod.node:
        return _never_held(admission) or failures.queued(admission)
    # Without the keeper's word nobody knows that it does not serve.
    if state is not None and ended is not None and (found := _ended(ended, lack)):
        return found
    view = AttemptSnapshot(pods=tuple(live), events=snapshot.events, short=snapshot.short)
    if found := failures.troubled(live, short=snapshot.short) or refusals.noted(view, live):
        return found
    partial = snapshot.is_grouped and (broken or not snapshot.is_whole)
    if state is None or (partial and state.phase == pb.PHASE_RUNNING):
        return _STARTING
    if state.reason == DOWNLOAD:
        # The store may be back, or URLs renewed, before patience ends.
        return starts(DOWNLOAD, state.message)
    return Diagnosis(phase=state.phase, reason=state.reason, message=state.message)


def _never_held(admission: Workload | None) -> Diagnosis | None:
    """Diagnosis of a pod that is larger than its queue; Kueue says so for every flavor alike."""
    said = admission.waiting.message if admission is not None and admission.waiting else ""
    if not _BEYOND.search(said) or len(_BEYOND.findall(said)) < len(_LACK.findall(said)):
        return None
    message = (
        f"Its queue can never hold it: {sentence(said)} Ask for fewer GPUs or less memory, or have "
        "the quota raised."
    )
    return waits("ExceedsQuota", message, "setup")


def _ended(pod: PodSnapshot, lack: str) -> Diagnosis | None:
    """Diagnosis of an engine whose container ends again and again."""
    last = pod.last_end or pod.runner
    if last is None or last.state != "terminated":
        return None
    if lack and last.reason not in TELLING:
        said = f"The engine ended with code {last.exit_code}: it found too little memory. {lack}"
        return failure("OutOfMemory", said)
    if last.reason == "OOMKilled":
        limit = units(pod.memory_limit)
        most = f"the {in_units(limit)} that it may use" if limit else "it may use"
        return failure(
            "OutOfMemory",
            f"The engine needed more memory than {most}. Lower kv_cache_bytes, context_length or "
            "max_concurrency, or have the operator raise `engines.memory_bytes`.",
        )
    return failure("ProcessExited", _words(last))


def _words(last: Container) -> str:
    if last.reason in UNSTARTED:
        # The runtime's own words: the engine has said nothing yet.
        return f"The engine's container could not be started: {sentence(last.message)}"
    # Others' requests are in its log, so nothing of it is in the cluster's objects.
    return (
        f"The engine ended with code {last.exit_code}; the operator finds its log with "
        "kubectl logs --previous."
    )
