"""Brings Kueue's objects of the quota about; those that Windlass did not make stay as they are."""

from collections.abc import Collection, Iterator

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.labels import CLUSTER, MANAGED_BY
from windlass.kubernetes.names import BadName, dns_subdomain, label_value
from windlass_agent.kube.resources import CLUSTERQUEUES, COHORTS, RESOURCEFLAVORS, Resource
from windlass_agent.kueue import writing
from windlass_agent.namespaces.managed_objects import ManagedObjects
from windlass_agent.namespaces.manifests import Item, Object
from windlass_agent.namespaces.ownership import is_made, labels_of
from windlass_agent.namespaces.sentences import AssignmentRefused

# Queues name flavors and cohorts, so they come last and go first.
_ORDER = (RESOURCEFLAVORS, COHORTS, CLUSTERQUEUES)


class KueueQuotas:
    """Flavors, cohorts and ClusterQueues of one cluster."""

    def __init__(self, managed: ManagedObjects):
        self._managed = managed

    async def settle(self, quota: pb.QuotaSpec, cluster_id: str) -> list[str]:
        """Applies the quotas; returns a sentence for each that could not be applied."""
        wanted = list(_manifests(quota, cluster_id))
        problems = []
        for manifest in wanted:
            try:
                self._check(manifest)
                await self._managed.settle(manifest)
            except (AssignmentRefused, BadName) as error:
                problems.append(str(error))
        for resource, item in self._left(wanted, cluster_id):
            try:
                await self._managed.delete(resource, item)
            except AssignmentRefused as error:
                problems.append(str(error))
        return problems

    def _left(self, wanted: Collection[Item], cluster_id: str) -> Iterator[tuple[Resource, Object]]:
        """Yields what we made for this cluster and nobody wants any more."""
        names = {(resource, body["metadata"]["name"]) for resource, body in wanted}
        for resource in reversed(_ORDER):
            for item in self._managed.all(resource):
                metadata = item["metadata"]
                ours = is_made(item) and labels_of(item).get(CLUSTER) == cluster_id
                # Kueue holds on to one that is deleted until nothing uses it.
                going = metadata.get("deletionTimestamp")
                if ours and not going and (resource, metadata["name"]) not in names:
                    yield resource, item

    def _check(self, item: Item) -> None:
        resource, body = item
        name = dns_subdomain(resource.kind, body["metadata"]["name"])
        actual = self._managed.find(resource, name)
        if actual is not None and not is_made(actual):
            label = next(f"{key}={value}" for key, value in MANAGED_BY.items())
            raise AssignmentRefused(
                f"{resource.kind} {name} exists and is not Windlass's. To hand it over: "
                f"kubectl label {resource.plural} {name} {label}"
            )


def _manifests(quota: pb.QuotaSpec, cluster_id: str) -> Iterator[Item]:
    labels = MANAGED_BY | {CLUSTER: label_value("Cluster", cluster_id)}
    for flavor in quota.flavors:
        yield RESOURCEFLAVORS, writing.flavor(flavor, labels=labels)
    for cohort in quota.cohorts:
        yield COHORTS, writing.cohort(cohort, labels=labels)
    for queue in quota.cluster_queues:
        yield CLUSTERQUEUES, writing.cluster_queue(queue, labels=labels)
