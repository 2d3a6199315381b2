"""A lease: a Deployment of one pod that holds devices, and the memory of all who come.

It is what Kueue admits, counts and preempts. Where devices are claimed it computes nothing: others
join its claim by the name of that, on its node and without a queue of their own. Where they are
counted, a launcher in it starts others as its processes.
"""

from collections.abc import Collection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import labels, names
from windlass.kubernetes.quantities import text_of
from windlass_agent.executors.kubernetes.engine_settings import ENGINE
from windlass_agent.executors.kubernetes.overlay import merge
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.engine import replica
from windlass_agent.executors.kubernetes.render.engine_plan import (
    digest,
    engine_labels,
    queue_labels,
)
from windlass_agent.executors.kubernetes.render.host import host_parts
from windlass_agent.executors.kubernetes.render.parts import Object
from windlass_agent.executors.kubernetes.settings import Accelerator, ClusterSettings
from windlass_agent.inventory.shapes import NodeChoice
from windlass_agent.kube.errors import Unrenderable

# Without a handler the first process of a container hears no SIGTERM.
_HOLD = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
_END_SECONDS = 5
MAX_GPUS = 64


def render_lease(
    workload: pb.Workload,
    settings: ClusterSettings,
    covered: Collection[str] | None,
    choice: NodeChoice | None,
) -> list[Object]:
    """The template of its claim and its Deployment, for server-side apply; raises Unrenderable."""
    place, lease = workload.placement, workload.lease
    if not place.namespace:
        raise Unrenderable("NoNamespace", "This project has no namespace in the cluster.")
    if not (1 <= lease.gpus <= MAX_GPUS and lease.memory_bytes > 0):
        raise ValueError("the devices or the memory of the lease are out of bounds")
    if lease.accelerator and choice is None:
        message = f"No node of the cluster has the accelerator {lease.accelerator!r}."
        raise Unrenderable("NoAccelerator", message)
    choice = choice or NodeChoice()
    try:
        device = parts.require_shared(
            parts.accelerator(settings, lease.gpus, place.queue, covered, choice.resource)
        )
        marks = engine_labels(workload)
        metadata = {
            "name": names.engine_name(workload.id),
            "namespace": names.dns_label("Namespace", place.namespace),
            "labels": marks,
        }
        nodes = parts.node_selector(place.node_selector, device, choice.labels)
    except names.BadName as error:
        raise Unrenderable("BadName", str(error)) from error
    queued = queue_labels(workload, settings)
    annotations = {
        labels.GENERATION: str(workload.generation),
        labels.ENGINE_SPEC: digest(workload),
    }
    if not device.device_class:
        annotations[labels.HOSTS] = "true"
    template = _template(workload, settings, device, marks | queued, nodes)
    marked = metadata | {"labels": marks | queued, "annotations": annotations}
    return [
        *parts.claim_template(metadata, device, lease.gpus),
        replica(marked, marks, template),
    ]


def _template(
    workload: pb.Workload,
    settings: ClusterSettings,
    device: Accelerator,
    marks: dict[str, str],
    nodes: dict[str, str],
) -> Object:
    metadata: Object = {"labels": marks}
    if device.device_class:
        own: Object = {
            "terminationGracePeriodSeconds": _END_SECONDS,
            "containers": [_container(workload, settings, device)],
        }
    else:
        noted, own = host_parts(workload, settings, device)
        metadata |= noted
    spec = parts.pod_spec(settings, device, names.engine_name(workload.id)) | own
    if nodes:
        spec["nodeSelector"] = nodes
    return merge({"metadata": metadata, "spec": spec}, _of_the_engine(settings.engines.overlay))


def _container(workload: pb.Workload, settings: ClusterSettings, device: Accelerator) -> Object:
    image = settings.engines.keeper
    claims, _ = parts.devices(device, workload.lease.gpus)
    memory = {"memory": str(workload.lease.memory_bytes)}
    cpus = {"cpu": text_of("cpu", round(1000 * settings.engines.cpus))}
    made: Object = {
        # Of the name by which the state of a pod is told.
        "name": ENGINE,
        "image": image.image,
        "command": [image.python, "-c", _HOLD],
        "env": [{"name": key, "value": value} for key, value in parts.variables(device).items()],
        "securityContext": dict(parts.CONTAINER_SECURITY),
        "resources": claims | {"requests": cpus | memory, "limits": memory},
    }
    if settings.image_pull_policy:
        made["imagePullPolicy"] = settings.image_pull_policy
    return made


def _of_the_engine(overlay: Object) -> Object:
    """The part of an engine's overlay that is about its container, but for what that asks for."""
    spec = dict(overlay.get("spec") or {})
    spec.pop("initContainers", None)
    found = spec.pop("containers", None) or ()
    kept = [
        {name: value for name, value in one.items() if name != "resources"}
        for one in found
        if one.get("name") == ENGINE
    ]
    return overlay | {"spec": spec | {"containers": kept}} if overlay else {}
