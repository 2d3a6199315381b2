"""One replica of an engine as it should be rendered, every name in it checked."""

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import from_message, require_gpus
from windlass.kubernetes import labels, names
from windlass.modelfiles import is_gguf
from windlass.modelfiles.encoders.embedding import MODULES
from windlass_agent.download import bytes_of
from windlass_agent.engines.in_pods.kinds import COMPLETED, engine_in_pod
from windlass_agent.engines.in_pods.trainer import TRAINER, require_sound
from windlass_agent.engines.port import EngineKind, EngineSpec
from windlass_agent.executors.kubernetes.engine_settings import EngineImage, WeightStore
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.parts import ClaimHolder
from windlass_agent.executors.kubernetes.render.weights import model_folder, order_of
from windlass_agent.executors.kubernetes.settings import Accelerator, ClusterSettings
from windlass_agent.inventory.shapes import NodeChoice
from windlass_agent.kube.errors import Unrenderable
from windlass_agent.memory import MEMORY_FOR_WEIGHTS

MIB = 1024**2
# Within the pod's own network: no other pod reaches it.
ENDPOINT = "http://127.0.0.1:8000"
SCRATCH = Path("/tmp")  # noqa: S108 - a volume of the container's own
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
# What an engine shares with the server that it completes.
SHARED = Path("/engine")
_SCRATCH_BYTES = 4 * 1024 * MIB
# Bytes for each byte of weights of 16 bits: in memory, all float32 with gradients and moments; on
# disk a state, or the models that a sampler keeps.
_TRAINED = {"trainer": 10, "sampler": 2}
_KEPT = {"trainer": 10, "sampler": 4}
# Folders, and the rest of each file's last block, which count as well.
_BLOCKS_BYTES = 64 * MIB


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
    node_selector: dict[str, str]
    # The pod whose claim it joins, which has its place in the queue; None: it has its own.
    holder: ClaimHolder | None = None

    @classmethod
    def of(
        cls,
        workload: pb.Workload,
        settings: ClusterSettings,
        covered: Collection[str] | None,
        choice: NodeChoice | None = None,
        holder: ClaimHolder | None = None,
    ) -> Self:
        """Makes a plan from a workload's spec; raises Unrenderable.

        `choice` is what its accelerator stands for in the cluster, None where that has none, and
        `holder` the pod of the lease that it sits on.
        """
        place, spec = workload.placement, workload.engine
        if not place.namespace:
            raise Unrenderable("NoNamespace", "This project has no namespace in the cluster.")
        image = settings.engines.image_of(spec.engine)
        gpus, arguments = spec.gpus or settings.engines.gpus, from_message(spec.arguments)
        _require_known(spec, settings, choice)
        if spec.engine == TRAINER or spec.HasField("trainer"):
            require_sound(spec.trainer)
        choice = choice or NodeChoice()
        try:
            require_gpus(arguments, gpus, max(1, spec.nodes))
        except ValueError as error:
            raise Unrenderable("NoRoom", str(error)) from error
        try:
            # It becomes a part of a path.
            names.label_value("Version", spec.model_version_id)
            names.label_value("Version", spec.draft_version_id)
            device = parts.accelerator(settings, gpus, place.queue, covered, choice.resource)
            if holder is not None:
                parts.require_shared(device, holder)
                _require_one_process(spec, holder)
            return cls(
                workload=workload,
                settings=settings,
                image=image,
                kind=engine_in_pod(
                    spec.engine, Path(image.python), image.flags, image.program, spec.trainer
                ),
                name=names.engine_name(workload.id),
                namespace=names.dns_label("Namespace", place.namespace),
                labels=engine_labels(workload),
                accelerator=device,
                covered=covered if place.queue and holder is None else None,
                holder=holder,
                node_selector=_nodes(
                    settings,
                    spec,
                    parts.node_selector(place.node_selector, device, choice.labels),
                ),
            )
        except names.BadName as error:
            raise Unrenderable("BadName", str(error)) from error

    @property
    def gpus(self) -> int:
        """Number of devices of each of its pods."""
        return self.workload.engine.gpus or self.settings.engines.gpus

    @property
    def nodes(self) -> int:
        """Number of its pods."""
        return max(1, self.workload.engine.nodes)

    @property
    def store(self) -> WeightStore:
        """The claim that its weights lie in; none where it has several pods.

        Those come from a StatefulSet of LeaderWorkerSet's controller, which the policy of the claim
        cannot tell from anybody's. Nor where it is a process of a pod that hosts others: each
        could write there.
        """
        return self.settings.engines.weights if self._is_kept_alone else WeightStore()

    @property
    def _is_kept_alone(self) -> bool:
        """True if none but its keeper can write where its weights are."""
        is_hosted = self.holder is not None and not self.holder.claim
        return self.nodes == 1 and not is_hosted

    @property
    def weights_bytes(self) -> int:
        """Size of the files that its model and its draft consist of."""
        return bytes_of(self.workload.engine)

    @property
    def volume_bytes(self) -> int:
        """Size of the volume that adapters lie in, and the model where no claim has it."""
        # On several nodes it has no adapters.
        adapters = self.settings.engines.adapter_bytes if self.nodes == 1 else 0
        own = 0 if self.store.claim else self.weights_bytes
        return own + adapters + _BLOCKS_BYTES

    @property
    def shared_bytes(self) -> int:
        """Size of the volume that an engine shares with the server that it completes.

        Weights in the server's own form, where it has one, and its adapters.
        """
        is_written = any(map(is_gguf, (one.path for one in self.workload.engine.model_files)))
        writes = COMPLETED[self.kind.name].writes_weights and not is_written
        written = self.weights_bytes if writes else 0
        return written + self.settings.engines.adapter_bytes + _BLOCKS_BYTES

    @property
    def is_trainer(self) -> bool:
        """True of a process of the tuning service."""
        return self.workload.engine.HasField("trainer")

    @property
    def scratch_bytes(self) -> int:
        """Size of the volume that it writes to: a trainer's states and models are there too."""
        kept = _KEPT.get(self.workload.engine.trainer.role, 0)
        return _SCRATCH_BYTES + kept * self.weights_bytes

    @property
    def memory_bytes(self) -> int:
        """Memory of the container with the weights in each pod, shared memory included."""
        engines, spec = self.settings.engines, self.workload.engine
        usual = engines.trainers.memory_bytes if self.is_trainer else engines.memory_bytes
        if asked := spec.memory_bytes or usual:
            return asked
        if self.is_trainer:
            return self.kind.memory_bytes + _TRAINED[spec.trainer.role] * self.weights_bytes
        each = 1 if self.gpus else MEMORY_FOR_WEIGHTS
        cache = 0 if self.gpus else spec.arguments.kv_cache_bytes
        cache += spec.arguments.kv_offload_bytes
        weights = -(-self.weights_bytes // self.nodes)
        return self.kind.memory_bytes + each * weights + cache

    def engine_spec(self, *, is_member: bool = False) -> EngineSpec:
        """The words of the engine's command, in its first pod or in another."""
        spec = self.workload.engine
        draft = spec.draft_version_id
        return EngineSpec(
            model_dir=model_folder(self.store, spec.model_version_id),
            draft_dir=model_folder(self.store, draft) if draft else None,
            served_name=spec.model,
            endpoint=ENDPOINT,
            max_adapters=max(1, spec.max_adapters),
            arguments=from_message(spec.arguments),
            cpus=math.ceil(self.settings.engines.cpus),
            gpus=self.gpus,
            nodes=self.nodes,
            is_member=is_member,
            tells_pooling=any(file.path == MODULES for file in spec.model_files),
            scratch=SHARED if self.image.completer else SCRATCH,
        )

    @property
    def model_labels(self) -> dict[str, str]:
        """The pod's label for pools, with the model's name, or a digest of that.

        None of a trainer's, which answers no requests of a pool.
        """
        if self.is_trainer:
            return {}
        return {labels.MODEL: names.label_of(self.workload.engine.model)}

    @property
    def tells_load(self) -> bool:
        """True if its keeper tells its load to the pods of a picker."""
        picker = self.settings.engines.picker_of(self.namespace, self.workload.engine.model)
        return picker is not None and bool(picker.pods)

    @property
    def queue_labels(self) -> dict[str, str]:
        """The labels that Kueue reads; empty where nobody counts."""
        return {} if self.holder is not None else queue_labels(self.workload, self.settings)


def queue_labels(workload: pb.Workload, settings: ClusterSettings) -> dict[str, str]:
    """The labels by which Kueue admits a pod; empty where nobody counts."""
    place, engines = workload.placement, settings.engines
    if not place.queue:
        return {}
    found = {labels.QUEUE: place.queue}
    if priority := engines.priority_class_of(workload.engine.priority, place.priority_class):
        found[labels.PRIORITY_CLASS] = priority
    return found


def _require_known(
    spec: pb.EngineWorkload, settings: ClusterSettings, choice: NodeChoice | None
) -> None:
    """Raises Unrenderable for an accelerator or a priority that the cluster does not have."""
    if spec.accelerator and choice is None:
        message = f"No node of the cluster has the accelerator {spec.accelerator!r}."
        raise Unrenderable("NoAccelerator", message)
    if spec.accelerator and not (spec.gpus or settings.engines.gpus):
        message = f"An engine on {spec.accelerator!r} needs GPUs, and asks for none."
        raise Unrenderable("NoAccelerator", message)
    settings.engines.priority_class_of(spec.priority, "")


def _require_one_process(spec: pb.EngineWorkload, holder: ClaimHolder) -> None:
    """Raises Unrenderable for a run of several processes in a pod that hosts others."""
    if not holder.claim and spec.trainer.processes > 1:
        raise Unrenderable(
            "NoRoom",
            "Runs of several processes do not share devices that are counted here.",
        )


def _nodes(
    settings: ClusterSettings, spec: pb.EngineWorkload, chosen: dict[str, str]
) -> dict[str, str]:
    """Labels of nodes with those of a trainer's role; raises Unrenderable where they differ."""
    for role, selector in settings.engines.trainers.node_selectors.items():
        if role != spec.trainer.role:
            continue
        for key, value in selector.items():
            if chosen.setdefault(key, value) != value:
                message = (
                    f"Nodes of a {role} have {key}={value}, those of the project {chosen[key]}."
                )
                raise Unrenderable("NoNodes", message)
    return chosen


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
        nodes=spec.nodes,
        draft_version_id=spec.draft_version_id,
        accelerator=spec.accelerator,
        memory_bytes=spec.memory_bytes,
        priority=spec.priority,
    )
    if spec.HasField("trainer"):
        kept.trainer.CopyFrom(spec.trainer)
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
    if workload.engine.HasField("trainer"):
        ids[labels.ROLE] = workload.engine.trainer.role
    elif workload.HasField("lease"):
        ids[labels.ROLE] = labels.LEASE_ROLE
    checked = {key: names.label_value(key, value) for key, value in ids.items()}
    return labels.MANAGED_BY | checked | {labels.KIND: labels.ENGINE_KIND}
