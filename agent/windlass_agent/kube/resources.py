"""Kinds of objects, and where the API serves them."""

import re
from dataclasses import dataclass

# A segment of a path: names in Kubernetes are at least this restricted.
_SEGMENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:_-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind that the API serves under one path."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of objects, such as `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Path of the group's version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of a collection, of one object, or of a part of it.

        Without a namespace, a namespaced kind's path is that of all namespaces.
        Raises ValueError when a part could leave its segment.
        """
        path = self.root
        if namespace and self.namespaced:
            path += f"/namespaces/{_segment(namespace)}"
        path += f"/{self.plural}"
        if name:
            path += f"/{_segment(name)}"
        if subresource:
            path += f"/{_segment(subresource)}"
        return path


def _segment(value: str) -> str:
    if not _SEGMENT.fullmatch(value) or ".." in value:
        raise ValueError(f"{value!r} cannot be a part of a path")
    return value


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
LEADERWORKERSETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
TRAINJOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
TRAININGRUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime"
)
CLUSTERTRAININGRUNTIMES = Resource(
    "trainer.kubeflow.org",
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    namespaced=False,
)

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLEBINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
NETWORKPOLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKENREVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
ACCESSREVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)

RESOURCECLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCECLAIMTEMPLATES = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
RESOURCESLICES = Resource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False
)
DEVICECLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)

_KUEUE = "kueue.x-k8s.io"
# The storage version of Kueue 0.16.
_KUEUE_VERSION = "v1beta2"
WORKLOADS = Resource(_KUEUE, _KUEUE_VERSION, "workloads", "Workload")
LOCALQUEUES = Resource(_KUEUE, _KUEUE_VERSION, "localqueues", "LocalQueue")
CLUSTERQUEUES = Resource(_KUEUE, _KUEUE_VERSION, "clusterqueues", "ClusterQueue", namespaced=False)
RESOURCEFLAVORS = Resource(
    _KUEUE, _KUEUE_VERSION, "resourceflavors", "ResourceFlavor", namespaced=False
)
COHORTS = Resource(_KUEUE, _KUEUE_VERSION, "cohorts", "Cohort", namespaced=False)
WORKLOADPRIORITYCLASSES = Resource(
    _KUEUE, _KUEUE_VERSION, "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
