"""A prefetch: a Deployment of one pod that brings weights to the claim, and waits to be removed.

It needs no quota, so it carries no queue. Its name and its labels are an engine's, for what holds
for engines' pods holds for it: none but the agent reaches it, and no member enters it.
"""

from collections.abc import Collection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import labels, names
from windlass_agent.executors.kubernetes.engine_settings import KEEPER, WeightStore
from windlass_agent.executors.kubernetes.overlay import merge
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.engine import replica
from windlass_agent.executors.kubernetes.render.engine_plan import digest, engine_labels
from windlass_agent.executors.kubernetes.render.engine_pod import KEEPER_MEMORY
from windlass_agent.executors.kubernetes.render.parts import Object
from windlass_agent.executors.kubernetes.render.weights import (
    store_flags,
    store_mounts,
    store_volumes,
)
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube.errors import Unrenderable

_TMP = "/tmp"  # noqa: S108 - a volume of the container's own
_TMP_BYTES = 16 * 1024**2


def render_prefetch(
    workload: pb.Workload, settings: ClusterSettings, covered: Collection[str] | None
) -> Object:
    """The Deployment of a prefetch, for server-side apply; raises Unrenderable.

    Its pod goes where an engine that asks for nothing would: a volume may be bound to those nodes.
    """
    store = settings.engines.require_store()
    if not workload.placement.namespace:
        raise Unrenderable("NoNamespace", "This project has no namespace in the cluster.")
    try:
        marks = engine_labels(workload)
        metadata = {
            "name": names.engine_name(workload.id),
            "namespace": names.dns_label("Namespace", workload.placement.namespace),
            "labels": marks,
        }
    except names.BadName as error:
        raise Unrenderable("BadName", str(error)) from error
    annotations = {
        labels.GENERATION: str(workload.generation),
        labels.ENGINE_SPEC: digest(workload),
    }
    made = _template(settings, store, marks)
    place = workload.placement
    device = parts.accelerator(settings, settings.engines.gpus, place.queue, covered)
    spec = made["spec"] | {"tolerations": parts.tolerations(settings, device)}
    if selected := parts.node_selector(place.node_selector, device):
        spec["nodeSelector"] = selected
    template = merge(made | {"spec": spec}, _of_the_keeper(settings.engines.overlay))
    return replica(metadata | {"annotations": annotations}, marks, template)


def _template(settings: ClusterSettings, store: WeightStore, marks: dict[str, str]) -> Object:
    authority = parts.require_authority(settings)
    spec = parts.pod_spec(settings, None, "") | {
        "containers": [_container(settings, store)],
        "volumes": [
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": str(_TMP_BYTES)}},
            parts.identity_volume(),
            *store_volumes(store),
        ],
    }
    return {
        "metadata": {"labels": marks, "annotations": {parts.CA_ANNOTATION: authority}},
        "spec": spec,
    }


def _container(settings: ClusterSettings, store: WeightStore) -> Object:
    image = settings.engines.keeper
    memory = {"memory": str(KEEPER_MEMORY)}
    made: Object = {
        "name": KEEPER,
        "image": image.image,
        "command": [
            image.python, "-m", "windlass_agent.keeper.prefetch",
            "--agent", settings.agent_address,
            "--agent-ca", f"{parts.SECRETS}/ca.crt",
            "--token-file", f"{parts.SECRETS}/token",
            *store_flags(store),
        ],
        "env": [{"name": key, "value": value} for key, value in parts.variables(None).items()],
        "securityContext": dict(parts.CONTAINER_SECURITY),
        "terminationMessagePolicy": "File",
        "resources": {"requests": {"cpu": "50m"} | memory, "limits": memory},
        "volumeMounts": [
            {"name": "tmp", "mountPath": _TMP},
            {"name": parts.SECRETS_VOLUME, "mountPath": parts.SECRETS, "readOnly": True},
            *store_mounts(store, writes=True),
        ],
    }  # fmt: skip
    if settings.image_pull_policy:
        made["imagePullPolicy"] = settings.image_pull_policy
    return made


def _of_the_keeper(overlay: Object) -> Object:
    """The part of an engine's overlay that is about its keeper, which is the only container."""
    spec = dict(overlay.get("spec") or {})
    kept = [one for one in spec.pop("initContainers", None) or () if one.get("name") == KEEPER]
    return overlay | {"spec": spec | {"containers": kept}} if overlay else {}
