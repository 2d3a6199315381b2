"""One replica of an engine: a Deployment of one pod, which Kueue admits by itself.

In the pod, the engine's container is upstream's image, unchanged; the keeper beside it is a
native sidecar, which starts first and ends last.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import from_message, require_gpus
from windlass.kubernetes import labels, names
from windlass.kubernetes.quantities import text_of
from windlass_agent.engines.pods import engine_in_pod
from windlass_agent.engines.port import EngineKind, EngineSpec
from windlass_agent.executors.kubernetes.engine_settings import ENGINE, KEEPER, EngineImage
from windlass_agent.executors.kubernetes.overlay import merge
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.parts import Object
from windlass_agent.executors.kubernetes.render.weights import (
    WEIGHTS,
    model_folder,
    order_of,
    store_flags,
    store_mounts,
    store_volumes,
)
from windlass_agent.executors.kubernetes.settings import Accelerator, ClusterSettings
from windlass_agent.keeper.health import ALIVE, DRAINED, READY, STARTED
from windlass_agent.kube.errors import Unrenderable
from windlass_agent.memory import MEMORY_FOR_WEIGHTS

MIB = 1024**2
DOOR_PORT, HEALTH_PORT = 8443, 8080
# Within the pod's own network: no other pod reaches it.
ENDPOINT = "http://127.0.0.1:8000"
_TMP = Path("/tmp")  # noqa: S108 - a volume of the container's own
_TMP_BYTES = 4 * 1024 * MIB
KEEPER_MEMORY = 256 * MIB
# Beyond the drain: the engine's own end.
_END_SECONDS = 30
# Of an engine that does not answer: nothing of it is worth waiting for.
_HUNG_END_SECONDS = 10
# Folders, and the rest of each file's last block, which count as well.
_BLOCKS_BYTES = 64 * MIB
# A day, for weights that come slowly.
_FETCH_SECONDS = 86_400
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True, kw_only=True)
class EnginePlan:
    """One replica, every name in it checked. `covered` is as for an attempt of a job."""

    workload: pb.Workload
    settings: ClusterSettings
    image: EngineImage
    kind: EngineKind
    name: str
    namespace: str
    labels: dict[str, str]
    accelerator: Accelerator | None
    covered: Collection[str] | None

    @classmethod
    def of(
        cls, workload: pb.Workload, settings: ClusterSettings, covered: Collection[str] | None
    ) -> Self:
        """Makes a plan from a workload's spec; raises Unrenderable."""
        place, spec = workload.placement, workload.engine
        if not place.namespace:
            raise Unrenderable("NoNamespace", "This project has no namespace in the cluster.")
        image = settings.engines.image_of(spec.engine)
        gpus = spec.gpus or settings.engines.gpus
        try:
            require_gpus(spec.arguments, gpus)
        except ValueError as error:
            raise Unrenderable("NoRoom", str(error)) from error
        try:
            # It becomes a part of a path.
            names.label_value("Version", spec.model_version_id)
            return cls(
                workload=workload,
                settings=settings,
                image=image,
                kind=engine_in_pod(spec.engine, Path(image.python), image.flags),
                name=names.engine_name(workload.id),
                namespace=names.dns_label("Namespace", place.namespace),
                labels=engine_labels(workload),
                accelerator=parts.accelerator(settings, gpus, place.queue, covered),
                covered=covered if place.queue else None,
            )
        except names.BadName as error:
            raise Unrenderable("BadName", str(error)) from error

    @property
    def gpus(self) -> int:
        """Number of devices of its pod."""
        return self.workload.engine.gpus or self.settings.engines.gpus

    @property
    def weights_bytes(self) -> int:
        """Size of the files that its model consists of."""
        return sum(file.bytes for file in self.workload.engine.model_files)

    @property
    def volume_bytes(self) -> int:
        """Size of the volume that adapters lie in, and the model where no claim has it."""
        engines = self.settings.engines
        own = 0 if engines.weights.claim else self.weights_bytes
        return own + engines.adapter_bytes + _BLOCKS_BYTES

    @property
    def memory_bytes(self) -> int:
        """Memory of the engine's container, shared memory included."""
        engines, spec = self.settings.engines, self.workload.engine
        if engines.memory_bytes:
            return engines.memory_bytes
        each = 1 if self.gpus else MEMORY_FOR_WEIGHTS
        cache = 0 if self.gpus else spec.arguments.kv_cache_bytes
        cache += spec.arguments.kv_offload_bytes
        return self.kind.memory_bytes + each * self.weights_bytes + cache

    @property
    def engine_spec(self) -> EngineSpec:
        """The words of the engine's command."""
        spec = self.workload.engine
        return EngineSpec(
            model_dir=model_folder(self.settings.engines.weights, spec.model_version_id),
            served_name=spec.model,
            endpoint=ENDPOINT,
            max_adapters=max(1, spec.max_adapters),
            arguments=from_message(spec.arguments),
            cpus=math.ceil(self.settings.engines.cpus),
            gpus=self.gpus,
            scratch=_TMP,
        )

    @property
    def queue_labels(self) -> dict[str, str]:
        """The labels that Kueue reads; empty where nobody counts."""
        place = self.workload.placement
        if not place.queue:
            return {}
        found = {labels.QUEUE: place.queue}
        if priority := self.settings.engines.priority_class or place.priority_class:
            found[labels.PRIORITY_CLASS] = priority
        return found


def render(plan: EnginePlan) -> list[Object]:
    """The objects of a replica, for server-side apply in this order; the Deployment is last."""
    metadata = {"name": plan.name, "namespace": plan.namespace, "labels": plan.labels}
    annotations = {
        labels.GENERATION: str(plan.workload.generation),
        labels.ENGINE_SPEC: digest(plan.workload),
    }
    marked = {"labels": plan.labels | plan.queue_labels, "annotations": annotations}
    body = replica(metadata | marked, plan.labels, _template(plan))
    return [*parts.claim_template(metadata, plan.accelerator, plan.gpus), body]


def replica(metadata: Object, marks: Mapping[str, str], template: Object) -> Object:
    """A Deployment of one pod, which it finds by its `marks`."""
    selected = (labels.WORKLOAD, labels.CLUSTER, labels.KIND)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 0,
            # The old pod leaves its quota and its devices first.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {name: marks[name] for name in selected}},
            "template": template,
        },
    }


def digest(workload: pb.Workload) -> str:
    """A digest of what a replica keeps from its start to its end.

    Other settings, such as the queue, apply to new pods alone: the planner starts those beside
    the old ones where what is in here changes.
    """
    spec = order_of(workload)
    kept = pb.EngineWorkload(
        engine=spec.engine,
        model=spec.model,
        model_version_id=spec.model_version_id,
        arguments=spec.arguments,
        gpus=spec.gpus,
    )
    return hashlib.sha256(kept.SerializeToString(deterministic=True)).hexdigest()[:32]


def engine_labels(workload: pb.Workload) -> dict[str, str]:
    """The labels of all that is made for a workload; raises BadName."""
    place = workload.placement
    if place.queue:
        names.dns_subdomain("Queue", place.queue)
        names.label_value("Queue", place.queue)
    names.label_value("Priority class", place.priority_class)
    ids = {
        labels.PROJECT: workload.project_id,
        labels.WORKLOAD: workload.id,
        labels.CLUSTER: workload.cluster_id,
    }
    checked = {key: names.label_value(key, value) for key, value in ids.items()}
    return labels.MANAGED_BY | checked | {labels.KIND: labels.ENGINE_KIND}


def _template(plan: EnginePlan) -> Object:
    settings = plan.settings
    authority = parts.require_authority(settings)
    engines = settings.engines
    shm = min(engines.shm_bytes, plan.memory_bytes // 2)
    spec = parts.pod_spec(settings, plan.accelerator, plan.name) | {
        "terminationGracePeriodSeconds": engines.drain + _END_SECONDS,
        "initContainers": [_keeper(plan)],
        "containers": [_engine(plan)],
        "volumes": [
            {"name": "weights", "emptyDir": {"sizeLimit": str(plan.volume_bytes)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": str(_TMP_BYTES)}},
            {"name": "keeper", "emptyDir": {"medium": "Memory", "sizeLimit": str(16 * MIB)}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shm)}},
            parts.identity_volume(),
            *store_volumes(engines.weights),
        ],
    }
    selector = plan.workload.placement.node_selector
    if selected := parts.node_selector(selector, plan.accelerator):
        spec["nodeSelector"] = selected
    made = {
        "metadata": {
            "labels": plan.labels | plan.queue_labels,
            "annotations": {parts.CA_ANNOTATION: authority},
        },
        "spec": spec,
    }
    return merge(made, engines.overlay)


def _engine(plan: EnginePlan) -> Object:
    spec, engines = plan.engine_spec, plan.settings.engines
    environment = parts.variables(plan.accelerator) | _OFFLINE | plan.kind.environment(spec)
    both = {"memory": str(plan.memory_bytes)}
    if plan.covered is None or "ephemeral-storage" in plan.covered:
        both["ephemeral-storage"] = str(plan.volume_bytes + _TMP_BYTES)
    claims, counted = parts.devices(plan.accelerator, plan.gpus)
    both |= counted
    requests = {"cpu": text_of("cpu", round(1000 * engines.cpus))}
    return _container(plan, ENGINE, plan.image.image, environment) | {
        "command": plan.kind.command(spec),
        "workingDir": str(_TMP),
        "resources": claims | {"requests": requests | both, "limits": both},
        "livenessProbe": _probe(ALIVE, every=10, failures=3)
        | {"terminationGracePeriodSeconds": _HUNG_END_SECONDS},
        # Every end of the pod waits for its open requests, whoever ends it.
        "lifecycle": {"preStop": {"httpGet": {"path": DRAINED, "port": HEALTH_PORT}}},
        "volumeMounts": [
            {"name": "weights", "mountPath": str(WEIGHTS), "readOnly": True},
            {"name": "tmp", "mountPath": str(_TMP)},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            *store_mounts(engines.weights, writes=False),
        ],
    }


def _keeper(plan: EnginePlan) -> Object:
    settings = plan.settings
    image = settings.engines.keeper
    memory = {"memory": str(KEEPER_MEMORY)}
    return _container(plan, KEEPER, image.image, parts.variables(None)) | {
        "restartPolicy": "Always",
        "command": [
            image.python, "-m", "windlass_agent.keeper",
            "--agent", settings.agent_address,
            "--agent-ca", f"{parts.SECRETS}/ca.crt",
            "--token-file", f"{parts.SECRETS}/token",
            "--engine", plan.kind.name,
            "--endpoint", ENDPOINT,
            "--weights", str(WEIGHTS),
            "--adapter-bytes", str(settings.engines.adapter_bytes),
            "--scratch", f"{_TMP}/keeper",
            "--port", str(DOOR_PORT),
            "--health-port", str(HEALTH_PORT),
            *store_flags(settings.engines.weights),
        ],
        "resources": {"requests": {"cpu": "50m"} | memory, "limits": memory},
        # The engine's container starts once the weights are there.
        "startupProbe": _probe(STARTED, every=1, failures=_FETCH_SECONDS),
        "readinessProbe": _probe(READY, every=2, failures=1),
        "ports": [{"name": "door", "containerPort": DOOR_PORT}],
        "volumeMounts": [
            {"name": "weights", "mountPath": str(WEIGHTS)},
            {"name": "keeper", "mountPath": str(_TMP)},
            {"name": parts.SECRETS_VOLUME, "mountPath": parts.SECRETS, "readOnly": True},
            *store_mounts(settings.engines.weights, writes=True),
        ],
    }  # fmt: skip


def _container(plan: EnginePlan, name: str, image: str, environment: dict[str, str]) -> Object:
    made: Object = {
        "name": name,
        "image": image,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "securityContext": dict(parts.CONTAINER_SECURITY),
        # Else the end of a log that others' requests are in, in a status that members may read.
        "terminationMessagePolicy": "File",
    }
    if plan.settings.image_pull_policy:
        made["imagePullPolicy"] = plan.settings.image_pull_policy
    return made


def _probe(path: str, *, every: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": HEALTH_PORT},
        "periodSeconds": every,
        "failureThreshold": failures,
        "timeoutSeconds": 5,
    }
