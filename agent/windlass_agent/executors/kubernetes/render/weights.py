"""The place of engines' weights: their pod, or a claim that its namespace shares.

Only the keeper writes to the claim: an engine sees it read-only. Adapters stay in the pod, since
those of others may be among them.
"""

from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import labels
from windlass_agent.download import prefetched
from windlass_agent.executors.kubernetes.engine_settings import WeightStore
from windlass_agent.executors.kubernetes.render.parts import Object

# A volume of the pod's own, and the claim.
WEIGHTS, STORE = Path("/weights"), Path("/store")
_VOLUME = "store"


def order_of(workload: pb.Workload) -> pb.EngineWorkload:
    """The order of a workload's keeper: of a prefetch, the files alone; of a lease, none."""
    if workload.HasField("lease"):
        asked = workload.lease
        return pb.EngineWorkload(
            gpus=asked.gpus, accelerator=asked.accelerator, memory_bytes=asked.memory_bytes
        )
    if not workload.HasField("prefetch"):
        return workload.engine
    return prefetched(workload.prefetch)


def model_folder(store: WeightStore, version_id: str) -> Path:
    """The folder of a version as the engine reads it."""
    return STORE / version_id if store.claim else WEIGHTS / "models" / version_id


def store_claim(store: WeightStore, namespace: str) -> Object | None:
    """The claim that the agent makes where there is none; None where the operator makes it."""
    if not (store.claim and store.bytes):
        return None
    spec: Object = {
        "accessModes": [store.access_mode],
        "resources": {"requests": {"storage": str(store.bytes)}},
    }
    if store.storage_class:
        spec["storageClassName"] = store.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": store.claim,
            "namespace": namespace,
            "labels": dict(labels.MANAGED_BY),
        },
        "spec": spec,
    }


def store_volumes(store: WeightStore) -> list[Object]:
    """The claim among a pod's volumes; none where weights lie in the pod."""
    if not store.claim:
        return []
    return [{"name": _VOLUME, "persistentVolumeClaim": {"claimName": store.claim}}]


def store_mounts(store: WeightStore, *, writes: bool) -> list[Object]:
    """The claim in a container that `writes` to it or only reads."""
    if not store.claim:
        return []
    mount: Object = {"name": _VOLUME, "mountPath": str(STORE)}
    return [mount if writes else mount | {"readOnly": True}]


def store_flags(store: WeightStore) -> list[str]:
    """The flags by which a keeper knows the claim."""
    if not store.claim:
        return []
    return ["--store", str(STORE), "--store-bytes", str(store.bytes)]
