"""Diagnosis of an attempt's objects: tables of recorded and possible cluster states."""

import json
from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.observe.diagnosis import Diagnosis
from windlass_agent.executors.kubernetes.observe.failures import diagnose
from windlass_agent.executors.kubernetes.observe.refusals import refused, unlaunched
from windlass_agent.executors.kubernetes.observe.snapshot import (
    AttemptSnapshot as Snapshot,
)
from windlass_agent.executors.kubernetes.observe.snapshot import (
    KubeEvent,
    RootObject,
    trim_event,
    trim_pod,
    trim_root,
)
from windlass_agent.kube.errors import Conflict, error_of
from windlass_agent.kueue import Workload

LABELS = {"windlass.dev/workload": "ftjob-1", "windlass.dev/attempt": "2",
          "windlass.dev/job": "ftjob-1"}  # fmt: skip
PENDING, STARTING, RUNNING = pb.PHASE_PENDING, pb.PHASE_STARTING, pb.PHASE_RUNNING
STOPPING, SUCCEEDED = pb.PHASE_STOPPING, pb.PHASE_SUCCEEDED
FAILED, STOPPED = pb.PHASE_FAILED, pb.PHASE_STOPPED


def conditions(*kinds: str, **reasons: str) -> list[dict[str, str]]:
    """`Complete`, `!PodScheduled`…, with reason and message by kind as `"reason: message"`."""
    found = []
    for kind in kinds:
        name = kind.removeprefix("!")
        reason, _, message = reasons.get(name, "").partition(": ")
        status = "False" if kind.startswith("!") else "True"
        found.append({"type": name, "status": status, "reason": reason, "message": message})
    return found


def job(*kinds: str, suspended: bool = False, deleting: bool = False, **reasons: str) -> RootObject:
    metadata: dict[str, Any] = {
        "name": "ftjob-1-2", "namespace": "team-a", "uid": "u1", "labels": LABELS,
        "annotations": {"windlass.dev/generation": "7"},
    }  # fmt: skip
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    status = {"conditions": conditions(*kinds, **reasons)}
    found = trim_root(
        "Job", {"metadata": metadata, "spec": {"suspend": suspended}, "status": status}
    )
    assert found is not None
    return found


def pod(
    state: dict[str, Any] | None = None,
    *,
    phase: str = "Pending",
    rank: int = 0,
    deleting: bool = False,
    kinds: tuple[str, ...] = ("PodScheduled",),
    others: tuple[dict[str, Any], ...] = (),
    reasons: dict[str, str] | None = None,
    memory: str = "",
    **status: str,
) -> Any:
    node = {"name": "node", "resources": {"limits": {"memory": memory} if memory else {}}}
    metadata: dict[str, Any] = {
        "name": f"ftjob-1-2-{rank}", "namespace": "team-a", "uid": f"p{rank}", "labels": LABELS,
        "annotations": {"batch.kubernetes.io/job-completion-index": str(rank)},
    }  # fmt: skip
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    containers = [*others]
    if state is not None:
        containers.append({"name": "node", "state": state})
    found = trim_pod(
        {
            "metadata": metadata,
            "spec": {
                "nodeName": "node-1", "serviceAccountName": "windlass-runner",
                "containers": [node],
            },
            "status": {
                "phase": phase, "containerStatuses": containers,
                "conditions": conditions(*kinds, **(reasons or {})), **status,
            },
        }
    )  # fmt: skip
    assert found is not None
    return found


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def dead(code: int, reason: str = "Error", message: str = "", at: str = "2026") -> dict[str, Any]:
    return {
        "terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": at}
    }


def kueue(*kinds: str, active: bool = True, **reasons: str) -> Workload:
    return Workload.parse(
        {
            "metadata": {"namespace": "team-a", "name": "job-ftjob-1-2", "uid": "w1",
                         "ownerReferences": [{"uid": "u1", "controller": True}]},
            "spec": {"queueName": "main", "active": active},
            "status": {"conditions": conditions(*kinds, **reasons)},
        }
    )  # fmt: skip


def last_word(outcome: str, **fields: str) -> str:
    return json.dumps({"outcome": outcome, **fields})


def event(reason: str, message: str, *, kind: str = "Job", name: str = "ftjob-1-2") -> KubeEvent:
    found = trim_event(
        {"reason": reason, "message": message,
         "involvedObject": {"kind": kind, "namespace": "team-a", "name": name}}
    )  # fmt: skip
    assert found is not None
    return found


RUN = {"running": {"startedAt": "2026"}}
FULL = "couldn't assign flavors to pod set main: insufficient unused quota for cpu"
NO_NODE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
NO_ROOM = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
CORDONED = "0/2 nodes are available: 2 node(s) were unschedulable."
TAINTED = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
SECURITY = (
    'Error creating: pods "ftjob-1-2-x" is forbidden: violates PodSecurity "restricted:latest": '
    "host namespaces (hostNetwork=true)"
)
TOO_SMALL = (
    'Error creating: pods "x" is forbidden: exceeded quota: small, requested: '
    "requests.memory=256Mi, used: requests.memory=0, limited: requests.memory=100Mi"
)
USED_UP = TOO_SMALL.replace("limited: requests.memory=100Mi", "limited: requests.memory=300Mi")
ADMITTED = kueue("QuotaReserved", "Admitted")
UNSCHEDULED = ("!PodScheduled",)

WAITS = [
    ("not seen by kueue", Snapshot(root=job(suspended=True)), PENDING, "Queued", ""),
    (
        "quota is used up",
        Snapshot(root=job(suspended=True),
              admission=kueue("!QuotaReserved", QuotaReserved=f"Pending: {FULL}")),
        PENDING, "Queued", "",
    ),
    (
        "no such queue",
        Snapshot(root=job(suspended=True), admission=kueue(
            "!QuotaReserved", QuotaReserved="Inadmissible: LocalQueue x doesn't exist")),
        PENDING, "QueueMissing", "setup",
    ),
    (
        "an operator holds the queue",
        Snapshot(root=job(suspended=True), admission=kueue(
            "!QuotaReserved", QuotaReserved="Inadmissible: ClusterQueue x is inactive")),
        PENDING, "Queued", "",
    ),
    (
        "admission checks are out",
        Snapshot(root=job(suspended=True), admission=kueue("QuotaReserved")),
        PENDING, "QuotaReserved", "",
    ),
    (
        "turned back by a check before it ran",
        Snapshot(root=job(suspended=True),
              admission=kueue("!QuotaReserved", "Evicted", Evicted="AdmissionCheck: no node")),
        PENDING, "Queued", "",
    ),
    ("admitted", Snapshot(root=job(), admission=ADMITTED), STARTING, "Starting", ""),
    ("without kueue", Snapshot(root=job()), STARTING, "Starting", ""),
    (
        "nodes are full",
        Snapshot(root=job(), pods=(pod(kinds=UNSCHEDULED,
              reasons={"PodScheduled": f"Unschedulable: {NO_ROOM}"}),)),
        PENDING, "Unschedulable", "",
    ),
    (
        "no node fits",
        Snapshot(root=job(), pods=(pod(kinds=UNSCHEDULED,
              reasons={"PodScheduled": f"Unschedulable: {NO_NODE}"}),)),
        PENDING, "Unschedulable", "schedule",
    ),
    *(
        (
            name,
            Snapshot(root=job(), short=short, pods=(pod(kinds=UNSCHEDULED,
                  reasons={"PodScheduled": f"Unschedulable: {said}"}),)),
            PENDING, "Unschedulable", patience,
        )
        for name, said, short, patience in (
            ("nodes are cordoned", CORDONED, True, ""),
            ("nodes are not ready", TAINTED, True, ""),
            ("nodes are another's", TAINTED, False, "schedule"),
            ("no node fits, cordoned or not", NO_NODE, True, "schedule"),
        )
    ),
    (
        "all devices are claimed",
        Snapshot(root=job(), pods=(pod(kinds=UNSCHEDULED, reasons={
            "PodScheduled": "Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims"
        }),)),
        PENDING, "Unschedulable", "",
    ),
    (
        "no such claim",
        Snapshot(root=job(), pods=(pod(kinds=UNSCHEDULED, reasons={
            "PodScheduled": 'Unschedulable: persistentvolumeclaim "data" not found'}),)),
        STARTING, "VolumeMissing", "start",
    ),
    ("container is made", Snapshot(root=job(), pods=(pod(waiting("ContainerCreating")),)),
     STARTING, "Starting", ""),
    ("image is not pulled", Snapshot(root=job(), pods=(pod(waiting("ErrImagePull", "refused")),)),
     STARTING, "ImagePullFailed", "start"),
    ("image is not pulled again", Snapshot(root=job(), pods=(pod(waiting("ImagePullBackOff")),)),
     STARTING, "ImagePullFailed", "start"),
    ("config is missing", Snapshot(root=job(), pods=(
        pod(waiting("CreateContainerConfigError", 'configmap "x" not found')),)),
     STARTING, "ContainerConfig", "start"),
    (
        "another container is in the way",
        Snapshot(root=job(), pods=(pod(waiting("PodInitializing"), others=(
            {"name": "sidecar", "state": waiting("ErrImagePull")},)),)),
        STARTING, "ImagePullFailed", "start",
    ),
    ("runs", Snapshot(root=job(), pods=(pod(RUN, phase="Running"),), admission=ADMITTED),
     RUNNING, "", ""),
    (
        "one of two runs",
        Snapshot(root=job(), pods=(pod(RUN, phase="Running"),
                                pod(waiting("ErrImagePull"), rank=1))),
        STARTING, "ImagePullFailed", "start",
    ),
    ("ended, and its Job does not know", Snapshot(
        root=job(), pods=(pod(dead(0, "Completed"), phase="Succeeded"),)), RUNNING, "", ""),
    ("failed, and its pods do not show it yet", Snapshot(root=job(
        "FailureTarget", FailureTarget="BackoffLimitExceeded: x"),
        pods=(pod(RUN, phase="Running"),)), RUNNING, "", ""),
    ("is being deleted", Snapshot(root=job(deleting=True), pods=(pod(RUN, phase="Running"),)),
     STOPPING, "Stopping", ""),
    ("only a pod is left", Snapshot(pods=(pod(RUN, phase="Running", deleting=True),)),
     STOPPING, "Stopping", ""),
    ("pod security", Snapshot(root=job(), events=(event("FailedCreate", SECURITY),)),
     STARTING, "PodSecurity", "start"),
    ("a resource quota is used up", Snapshot(root=job(), events=(event("FailedCreate", USED_UP),)),
     PENDING, "QuotaExceeded", ""),
    ("an account is missing", Snapshot(root=job(), events=(event(
        "FailedCreate", 'Error creating: pods "x" is forbidden: error looking up service account '
        'a/b: serviceaccount "b" not found'),)), PENDING, "SetupIncomplete", "setup"),
    ("a webhook", Snapshot(root=job(), events=(event(
        "FailedCreate", 'admission webhook "x.example" denied the request: no'),)),
     STARTING, "AdmissionDenied", "start"),
    ("a mount", Snapshot(root=job(), pods=(pod(waiting("ContainerCreating")),), events=(event(
        "FailedMount", 'configmap "x" not found', kind="Pod", name="ftjob-1-2-0"),)),
     STARTING, "VolumeMissing", "start"),
    ("events of the past", Snapshot(root=job(), pods=(pod(RUN, phase="Running"),), events=(
        event("FailedCreate", SECURITY),
        event("FailedMount", "x", kind="Pod", name="ftjob-1-2-0"))), RUNNING, "", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("snapshot", "phase", "reason", "patience"), [case[1:] for case in WAITS],
    ids=[case[0] for case in WAITS],
)  # fmt: skip
def test_what_goes_on(snapshot: Snapshot, phase: int, reason: str, patience: str) -> None:
    found = diagnose(snapshot)
    assert (found.phase, found.reason, found.patience) == (phase, reason, patience)


def fails(*pods: Any, root: RootObject | None = None, **more: Any) -> Snapshot:
    failed = job("FailureTarget", FailureTarget="BackoffLimitExceeded: Job has reached the limit")
    return Snapshot(root=root or failed, pods=pods, **more)


LIMIT = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
VOLUME = 'Usage of EmptyDir volume "work" exceeds the limit "20Gi". '
PRESSURE = "The node was low on resource: memory. Container node was using 9Gi, request is 4Gi."

ENDS = [
    ("complete", Snapshot(root=job("Complete"), pods=(pod(dead(0), phase="Succeeded"),)),
     SUCCEEDED, ""),
    ("complete after all", Snapshot(root=job("Complete"), admission=kueue(
        "Evicted", Evicted="Preempted: y")), SUCCEEDED, ""),
    ("stopped on request", fails(
        pod(dead(143, message=last_word("stopped")), phase="Failed")), STOPPED, ""),
    ("stopped by kueue", fails(
        pod(dead(143, message=last_word("stopped")), phase="Failed"), admission=kueue(
            "Evicted", Evicted="Preempted: to accommodate another")), FAILED, "Preempted"),
    ("preempted", Snapshot(root=job(), pods=(pod(RUN, phase="Running"),), admission=kueue(
        "Evicted", Evicted="Preempted: to accommodate another")), FAILED, "Preempted"),
    ("its queue was stopped", Snapshot(root=job(), admission=kueue(
        "Evicted", Evicted="ClusterQueueStopped: The ClusterQueue is stopped")),
     FAILED, "Preempted"),
    ("pods were not ready", Snapshot(root=job(), admission=kueue(
        "Evicted", Evicted="PodsReadyTimeout: Exceeded")), FAILED, "Evicted"),
    ("deactivated", Snapshot(root=job(), admission=kueue(
        "Evicted", Evicted="Deactivated: The workload is deactivated")), FAILED, "Deactivated"),
    ("deactivated while it waited", Snapshot(root=job(suspended=True), admission=kueue(
        active=False)), FAILED, "Deactivated"),
    ("kueue could not start it", Snapshot(root=job(suspended=True), admission=kueue(
        "Finished", Finished="FailedToStart: conflict for nodeSelector")), FAILED, "StartRefused"),
    ("deadline", fails(pod(dead(143, message=last_word("stopped")), phase="Failed"),
     root=job("Failed", Failed="DeadlineExceeded: too long")), FAILED, "DeadlineExceeded"),
    ("memory", fails(pod(dead(137, "OOMKilled"), phase="Failed")), FAILED, "OutOfMemory"),
    ("memory, of a child", fails(pod(dead(1, "OOMKilled", last_word(
        "failed", error_code="out_of_memory")), phase="Failed")), FAILED, "out_of_memory"),
    ("a failure with a word", fails(pod(dead(1, message=last_word(
        "failed", error_code="disk_full")), phase="Failed")), FAILED, "disk_full"),
    ("a failure without", fails(pod(dead(2, message="Traceback"), phase="Failed")),
     FAILED, "ProcessExited"),
    ("killed", fails(pod(dead(137), phase="Failed")), FAILED, "ProcessKilled"),
    ("unknown to its agent", fails(pod(dead(3), phase="Failed")), FAILED, "RunnerLost"),
    ("no such program", fails(pod(dead(128, "StartError", "no such file"), phase="Failed")),
     FAILED, "ContainerConfig"),
    ("an init container failed", fails(pod(waiting("PodInitializing"), phase="Failed", others=(
        {"name": "init", "state": dead(1)},))), FAILED, "ContainerConfig"),
    ("too much disk", fails(pod(dead(143, message=last_word("stopped")), phase="Failed",
     reason="Evicted", message=LIMIT)), FAILED, "StorageExceeded"),
    ("too much in a volume", fails(pod(dead(143, message=last_word("stopped")), phase="Failed",
     reason="Evicted", message=VOLUME)), FAILED, "StorageExceeded"),
    ("node under pressure", fails(pod(dead(137), phase="Failed", reason="Evicted",
     message=PRESSURE)), FAILED, "Evicted"),
    ("drained", fails(pod(dead(143), phase="Failed", kinds=("DisruptionTarget",), reasons={
        "DisruptionTarget": "EvictionByEvictionAPI: Eviction API: evicting"})), FAILED, "Evicted"),
    ("preempted by the scheduler", fails(pod(dead(143), phase="Failed", kinds=(
        "DisruptionTarget",), reasons={"DisruptionTarget": "PreemptionByScheduler: x"})),
     FAILED, "Preempted"),
    ("node is gone", fails(pod(None, phase="Failed", kinds=("DisruptionTarget",), reasons={
        "DisruptionTarget": "DeletionByPodGC: x"})), FAILED, "NodeLost"),
    ("kubelet did not take it", fails(pod(None, phase="Failed", reason="OutOfcpu",
     message="Pod was rejected")), FAILED, "Evicted"),
    ("pod deleted", fails(), FAILED, "Evicted"),
    ("node does not answer", Snapshot(root=job(), lost=frozenset({"node-1"}), pods=(
        pod(RUN, phase="Running", deleting=True),)), FAILED, "NodeLost"),
    ("the first to fail", fails(
        pod(dead(143, at="2026-2"), phase="Failed"),
        pod(dead(9, at="2026-3"), phase="Failed", rank=1)), FAILED, "ProcessExited"),
    ("the first to fail, not who was stopped", fails(
        pod(dead(143, message=last_word("stopped"), at="2026-2"), phase="Failed"),
        pod(dead(9, at="2026-3"), phase="Failed", rank=1)), FAILED, "ProcessExited"),
    ("the node at fault, not one that lost it", fails(
        pod(dead(1, message=last_word("failed", error_code="ProcessKilled"), at="2026-2"),
            phase="Failed"),
        pod(dead(1, message=last_word("failed", error_code="trainer_failed"), at="2026-3"),
            phase="Failed", rank=1)), FAILED, "trainer_failed"),
    ("bad image name", Snapshot(root=job(), pods=(pod(waiting("InvalidImageName", "x")),)),
     FAILED, "ImagePullFailed"),
    ("a resource quota is too small", Snapshot(root=job(), events=(
        event("FailedCreate", TOO_SMALL),)), FAILED, "QuotaExceeded"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("snapshot", "phase", "reason"), [case[1:] for case in ENDS], ids=[case[0] for case in ENDS]
)
def test_what_is_over(snapshot: Snapshot, phase: int, reason: str) -> None:
    found = diagnose(snapshot)
    assert (found.phase, found.reason) == (phase, reason)
    if found.failed and found.reason.istitle():
        assert found.message.endswith(".")


def test_how_much_memory_there_was_is_said() -> None:
    killed = pod(dead(137, "OOMKilled"), phase="Failed", memory="1536Mi")
    assert "than the 1.5 GiB that it may use" in diagnose(fails(killed)).message
    killed = pod(dead(137, "OOMKilled"), phase="Failed")
    assert "more memory than it may use" in diagnose(fails(killed)).message


def test_a_node_that_only_flickers_loses_nothing() -> None:
    snapshot = Snapshot(root=job(), pods=(pod(RUN, phase="Running"),), lost=frozenset({"node-1"}))
    assert diagnose(snapshot) == Diagnosis(phase=RUNNING)
    assert snapshot.alive


@pytest.mark.parametrize(
    ("snapshot", "alive"),
    [
        (Snapshot(root=job(suspended=True)), True),
        (Snapshot(root=job("Failed")), False),
        (Snapshot(root=job("Failed"), pods=(pod(RUN, phase="Running", deleting=True),)), True),
        (Snapshot(root=job("FailureTarget")), True),
        (Snapshot(root=job(deleting=True)), True),
        (Snapshot(pods=(pod(RUN, phase="Running"),)), True),
        (Snapshot(pods=(pod(dead(0), phase="Succeeded"),)), False),
        (Snapshot(root=job(deleting=True), lost=frozenset({"node-1"}),
               pods=(pod(RUN, phase="Running", deleting=True),)), False),
        (Snapshot(root=job(), lost=frozenset({"node-1"}),
               pods=(pod(RUN, phase="Running", deleting=True),)), True),
    ],
)  # fmt: skip
def test_whether_something_may_run(snapshot: Snapshot, alive: bool) -> None:
    """Of a lost node nobody can know; what is being deleted waits for it in vain."""
    assert snapshot.alive is alive


@pytest.mark.parametrize(
    ("status", "message", "phase", "reason"),
    [
        (404, 'namespaces "team-a" not found', PENDING, "NamespaceMissing"),
        (404, "the server could not find the requested resource", PENDING, "Unsupported"),
        (403, 'jobs.batch is forbidden: User "agent" cannot patch', STARTING, "Forbidden"),
        (403, 'admission webhook "x" denied the request: no', STARTING, "AdmissionDenied"),
        (422, 'Job.batch "x" is invalid: spec: Invalid value', FAILED, "InvalidWorkload"),
        (400, 'strict decoding error: unknown field "spec.x"', FAILED, "InvalidWorkload"),
        (500, "failed calling webhook", PENDING, "ApiUnavailable"),
        (429, "too many requests", PENDING, "ApiUnavailable"),
    ],
)
def test_what_is_not_taken(status: int, message: str, phase: int, reason: str) -> None:
    found = unlaunched(error_of(status, {"message": message}), "team-a")
    assert (found.phase, found.reason) == (phase, reason)


def test_a_conflict_is_tried_again() -> None:
    assert unlaunched(Conflict(409, "Conflict", "changed"), "team-a").phase == PENDING


def test_somebody_elses_words_are_bounded_and_on_one_line() -> None:
    message = refused("x" * 9000 + "\nsecond").message
    assert len(message) < 2000
    assert "\n" not in message
