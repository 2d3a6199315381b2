"""Parts common to an attempt's objects: names, labels, devices, sizes."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import names
from windlass.kubernetes.labels import (
    ATTEMPT,
    CLUSTER,
    GENERATION,
    JOB,
    JOB_KIND,
    KIND,
    MANAGED_BY,
    PRIORITY_CLASS,
    PROJECT,
    QUEUE,
    WORKLOAD,
)
from windlass_agent.executors.kubernetes.render.parts import Object, accelerator
from windlass_agent.executors.kubernetes.settings import Accelerator, ClusterSettings
from windlass_agent.executors.world import processes_of
from windlass_agent.kube.errors import Unrenderable


@dataclass(frozen=True, kw_only=True)
class AttemptSpec:
    """One attempt of a job, every name in it checked.

    `covered` are the resources that its queue holds quota for; None where nobody counts.
    """

    workload: pb.Workload
    settings: ClusterSettings
    name: str
    namespace: str
    labels: dict[str, str]
    accelerator: Accelerator | None
    covered: Collection[str] | None

    @classmethod
    def of(
        cls,
        workload: pb.Workload,
        settings: ClusterSettings,
        covered: Collection[str] | None = None,
    ) -> Self:
        """Makes an attempt from a workload's spec; raises Unrenderable."""
        place = workload.placement
        if not place.namespace:
            raise Unrenderable("NoNamespace", "This project has no namespace in the cluster.")
        try:
            return cls(
                workload=workload,
                settings=settings,
                name=names.object_name(workload.job.job_id, workload.job.attempt),
                namespace=names.dns_label("Namespace", place.namespace),
                labels=_labels(workload),
                accelerator=accelerator(settings, workload.resources.gpus, place.queue, covered),
                covered=covered if place.queue else None,
            )
        except names.BadName as error:
            raise Unrenderable("BadName", str(error)) from error

    @property
    def nodes(self) -> int:
        """Number of pods."""
        return max(1, self.workload.job.num_nodes)

    @property
    def gpus(self) -> int:
        """Number of devices of each pod."""
        return self.workload.resources.gpus

    @property
    def processes(self) -> int:
        """Number of training processes of each pod."""
        return processes_of(self.workload.resources)

    @property
    def suspension(self) -> Object:
        """`suspend` where Kueue decides when to start."""
        return {"suspend": True} if self.workload.placement.queue else {}

    def metadata(self) -> Object:
        """Metadata of the attempt's dependent objects."""
        return {"name": self.name, "namespace": self.namespace, "labels": dict(self.labels)}

    def admitted_metadata(self) -> Object:
        """Metadata of the object that Kueue admits."""
        place = self.workload.placement
        queued = {}
        if place.queue:
            queued[QUEUE] = place.queue
            if place.priority_class:
                queued[PRIORITY_CLASS] = place.priority_class
        return self.metadata() | {
            "labels": self.labels | queued,
            "annotations": {GENERATION: str(self.workload.generation)},
        }


def _labels(workload: pb.Workload) -> dict[str, str]:
    place = workload.placement
    if place.queue:
        names.dns_subdomain("Queue", place.queue)
        # As a label it is shorter than a queue's name may be.
        names.label_value("Queue", place.queue)
    names.label_value("Priority class", place.priority_class)
    ids = {
        JOB: workload.job.job_id,
        ATTEMPT: str(workload.job.attempt),
        PROJECT: workload.project_id,
        WORKLOAD: workload.id,
        CLUSTER: workload.cluster_id,
    }
    checked = {key: names.label_value(key, value) for key, value in ids.items()}
    return MANAGED_BY | checked | {KIND: JOB_KIND}
