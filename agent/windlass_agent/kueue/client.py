"""Client of Kueue."""

from windlass.kubernetes.labels import JOB_UID
from windlass_agent.kube.client import Kube
from windlass_agent.kube.resources import WORKLOADS, Resource
from windlass_agent.kueue.workload import Workload

_VISIBILITY = Resource(
    "visibility.kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False
)
_PAGE = 1000


class Kueue:
    """One cluster's Kueue. Raises KubeError."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def workload_of(self, namespace: str, job_uid: str) -> Workload | None:
        """The Workload that Kueue made for a Job, JobSet or TrainJob; None before it has."""
        found = await self._kube.list(
            WORKLOADS.path(namespace), label_selector=f"{JOB_UID}={job_uid}"
        )
        return Workload.parse(found[0]) if found else None

    async def set_active(self, namespace: str, name: str, active: bool) -> None:
        """An inactive Workload is evicted, its pods stopped, and is not admitted any more."""
        await self._kube.patch(WORKLOADS.path(namespace, name), {"spec": {"active": active}})

    async def pending(self, cluster_queue: str) -> dict[str, int]:
        """Places in line, 1 being next, by `namespace/name` of each Workload that waits.

        Asks for ClusterQueues alone: of a LocalQueue, Kueue 0.16 also answers those that wait
        in queues of the same name in other namespaces.
        """
        path = _VISIBILITY.path(name=cluster_queue, subresource="pendingworkloads")
        places: dict[str, int] = {}
        offset = 0
        while True:
            answer = await self._kube.get(path, limit=_PAGE, offset=offset)
            items = answer.get("items") or []
            for item in items:
                metadata = item["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                places[key] = item["positionInClusterQueue"] + 1
            if len(items) < _PAGE:
                return places
            offset += _PAGE
