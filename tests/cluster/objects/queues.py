"""Kueue's objects for one namespace: a flavor, a ClusterQueue and a LocalQueue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

API = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Wishes:
    """Quota of a queue."""

    cpu: str = "1"
    memory: str = "4Gi"
    gpus: int = 0
    # Further resources by name.
    resources: Mapping[str, str] = field(default_factory=dict)
    cohort: str = ""
    # Pods of the flavor go only to nodes with these labels.
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str], ...] = ()
    # Further fields of the ClusterQueue, such as its preemption.
    spec: Mapping[str, Any] = field(default_factory=dict)
    name: str = "main"

    def quotas(self) -> dict[str, str]:
        """The nominal quota of every resource."""
        gpus = {"nvidia.com/gpu": str(self.gpus)} if self.gpus else {}
        return {"cpu": self.cpu, "memory": self.memory, **gpus, **self.resources}


def objects(namespace: str, wishes: Wishes) -> list[dict[str, Any]]:
    """The flavor, the ClusterQueue (both named NAMESPACE-QUEUE) and, last, the LocalQueue."""
    shared = f"{namespace}-{wishes.name}"
    flavor: dict[str, Any] = _object("ResourceFlavor", shared)
    flavor["spec"] = {}
    if wishes.node_labels:
        flavor["spec"]["nodeLabels"] = dict(wishes.node_labels)
    if wishes.tolerations:
        flavor["spec"]["tolerations"] = list(wishes.tolerations)
    quotas = wishes.quotas()
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group = {
        "coveredResources": list(quotas),
        "flavors": [{"name": shared, "resources": resources}],
    }
    queue = _object("ClusterQueue", shared)
    queue["spec"] = {"namespaceSelector": {}, "resourceGroups": [group], **wishes.spec}
    if wishes.cohort:
        queue["spec"]["cohortName"] = wishes.cohort
    local = _object("LocalQueue", wishes.name)
    local["metadata"]["namespace"] = namespace
    local["spec"] = {"clusterQueue": shared}
    return [flavor, queue, local]


def _object(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}}
