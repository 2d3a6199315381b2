"""Logs of a job's pods while they are written."""

import sys
from typing import Any

from windlass.cli.framework.calling import Call
from windlass.client.errors import ConnectionFailed, WindlassError
from windlass.client.resources.clusters import Kubernetes, container_of
from windlass.client.resources.jobs import ENDED
from windlass.client.transport.reconnect_policy import ReconnectPolicy
from windlass.kubernetes.labels import ATTEMPT

PATIENCE_SECONDS = 300.0


def followed(call: Call, found: str) -> bool:
    """Copies a job's live log to stdout until its end; False where there was none to follow."""
    kubernetes = _access(call, found)
    return kubernetes is not None and _follow_pods(call, found, kubernetes)


def running(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the running pods of the latest attempt."""
    attempts = [pod["metadata"]["labels"].get(ATTEMPT) for pod in pods]
    return [
        pod
        for pod, attempt in zip(pods, attempts, strict=True)
        if attempt == attempts[0] and pod["status"].get("phase") == "Running"
    ]


def _access(call: Call, found: str) -> Kubernetes | None:
    """The cluster of a job that is not over, None where there is no way into one."""
    job = call.client.jobs.get(found)
    cluster_id = str((job.get("windlass") or {}).get("cluster") or "")
    if not cluster_id or job["status"] in ENDED:
        return None
    try:
        return call.client.clusters.kubernetes(cluster_id)
    except WindlassError:
        # Another kind of cluster, no listener, or no permission: the stored log is for all.
        return None


def _follow_pods(call: Call, found: str, kubernetes: Kubernetes) -> bool:
    """Follows the pods of one attempt after the other; False when there was none to follow."""
    reconnects, printed = ReconnectPolicy(PATIENCE_SECONDS), dict[str, int]()
    reconnects.reset()
    while True:
        try:
            pods = running(kubernetes.pods_of(found))
            if not pods and not printed:
                return False
            if pods:
                pod = pods[0]["metadata"]["name"]
                call.out.note(f"Live from the pod {pod}.")
                _copy(kubernetes, pod, container_of(pods[0]), printed)
            if call.client.jobs.get(found)["status"] in ENDED:
                return True
            reconnects.reset()
            reconnects.wait()
        except (ConnectionFailed, WindlassError) as error:
            reconnects.record_failure(error)


def _copy(kubernetes: Kubernetes, pod: str, container: str, printed: dict[str, int]) -> None:
    """Prints what of the pod's log was not printed yet."""
    known, seen = printed.setdefault(pod, 0), 0
    for piece in kubernetes.log(pod, container, follow=True):
        fresh = piece[max(0, known - seen) :]
        seen += len(piece)
        if fresh:
            sys.stdout.buffer.write(fresh)
            sys.stdout.buffer.flush()
            printed[pod] += len(fresh)
