"""A guest as an object of this cluster; rendered, never read. Pure."""

from typing import Any

import msgspec

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import names
from windlass.kubernetes.labels import (
    CLUSTER,
    GENERATION,
    GUEST,
    KIND,
    MANAGED_BY,
    PREFIX,
    PRIORITY_CLASS,
    PROJECT,
    QUEUE,
    WORKLOAD,
)
from windlass_agent.federation.applied import RESOURCES
from windlass_agent.kube.errors import Unrenderable

Object = dict[str, Any]
# What the object is called where it was applied.
NAME = PREFIX + "name"


def name_of(workload: pb.Workload) -> str:
    """The name of an attempt's object."""
    return names.object_name(workload.id, workload.guest.attempt)


def path_of(workload: pb.Workload) -> str:
    """The object's path in the API."""
    kind = RESOURCES[workload.guest.kind]
    return kind.path(workload.placement.namespace, name_of(workload))


def render(workload: pb.Workload) -> Object:
    """The object, for server-side apply; created suspended where there is a queue.

    Raises Unrenderable.
    """
    place, guest = workload.placement, workload.guest
    if guest.kind not in RESOURCES:
        raise Unrenderable("UnknownKind", f"This cluster's agent runs no {guest.kind}.")
    if not place.namespace:
        raise Unrenderable("NoNamespace", "This project has no namespace in this cluster.")
    try:
        labels, queue = _labels(workload), _queue(place)
        node_selector = names.node_selector(place.node_selector)
        namespace = names.dns_label("Namespace", place.namespace)
    except names.BadName as error:
        raise Unrenderable("BadName", str(error)) from error
    spec = msgspec.json.decode(guest.spec, type=Object)
    for template in _templates(guest.kind, spec):
        metadata, pod = template.setdefault("metadata", {}), template["spec"]
        metadata["labels"] = (metadata.get("labels") or {}) | labels
        pod["automountServiceAccountToken"] = False
        if node_selector:
            pod["nodeSelector"] = (pod.get("nodeSelector") or {}) | node_selector
    if queue:
        spec["suspend"] = True
    kind = RESOURCES[guest.kind]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {
            "name": name_of(workload),
            "namespace": namespace,
            "labels": labels | queue,
            "annotations": {GENERATION: str(workload.generation), NAME: guest.name},
        },
        "spec": spec,
    }


def _labels(workload: pb.Workload) -> dict[str, str]:
    ids = {
        WORKLOAD: workload.id,
        PROJECT: workload.project_id,
        CLUSTER: workload.cluster_id,
    }
    checked = {key: names.label_value(key, value) for key, value in ids.items()}
    return MANAGED_BY | checked | {KIND: GUEST}


def _queue(place: pb.Placement) -> dict[str, str]:
    if not place.queue:
        return {}
    names.dns_subdomain("Queue", place.queue)
    queue = {QUEUE: names.label_value("Queue", place.queue)}
    if place.priority_class:
        queue[PRIORITY_CLASS] = names.label_value("Priority class", place.priority_class)
    return queue


def _templates(kind: str, spec: Object) -> list[Object]:
    if kind == "Job":
        return [spec["template"]]
    return [job["template"]["spec"]["template"] for job in spec["replicatedJobs"]]
