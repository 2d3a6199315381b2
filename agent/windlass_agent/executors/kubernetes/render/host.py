"""The pod of a lease whose devices are counted, and the residents that are its processes.

Nobody else can join counted devices, so that trainers and samplers run in the container that has
them, each with its keeper, a folder and ports of its own. A launcher starts them as it is told.
"""

from dataclasses import replace
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.kubernetes.quantities import text_of
from windlass_agent.engines.in_pods.trainer import TRAINER
from windlass_agent.executors.kubernetes.engine_settings import ENGINE
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.engine_plan import (
    OFFLINE,
    SCRATCH,
    EnginePlan,
    digest,
)
from windlass_agent.executors.kubernetes.render.engine_pod import (
    DOOR_PORT,
    HEALTH_PORT,
    KEEPER_MEMORY,
)
from windlass_agent.executors.kubernetes.render.parts import Object
from windlass_agent.executors.kubernetes.settings import Accelerator, ClusterSettings
from windlass_agent.keeper.host.order import MAX_RESIDENTS

# Of residents: door and health have a port of their own each from those of a pod on, this too.
ENDPOINT_PORT = 8000
LAST_DOOR_PORT = DOOR_PORT + MAX_RESIDENTS - 1
RESIDENTS = SCRATCH / "residents"
# For the launcher to end the residents.
END_SECONDS = 60


def host_parts(
    workload: pb.Workload, settings: ClusterSettings, device: Accelerator
) -> tuple[Object, Object]:
    """Metadata of the pod and the parts of its spec that are a launcher's; raises Unrenderable."""
    authority = parts.require_authority(settings)
    shm = min(settings.engines.shm_bytes, workload.lease.memory_bytes // 2)
    spec = {
        "terminationGracePeriodSeconds": END_SECONDS,
        "containers": [_launcher(workload, settings, device)],
        "volumes": [
            # Of no size: what each resident may have of it, the launcher sees to.
            {"name": "tmp", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shm)}},
            parts.identity_volume(),
        ],
    }
    return {"annotations": {parts.CA_ANNOTATION: authority}}, spec


def _launcher(workload: pb.Workload, settings: ClusterSettings, device: Accelerator) -> Object:
    image = settings.engines.image_of(TRAINER)
    _, counted = parts.devices(device, workload.lease.gpus)
    both = {"memory": str(workload.lease.memory_bytes)} | counted
    cpus = {"cpu": text_of("cpu", round(1000 * settings.engines.cpus))}
    made: Object = {
        # Of the name by which the state of a pod is told.
        "name": ENGINE,
        "image": image.image,
        "command": [
            image.python, "-m", "windlass_agent.keeper.host",
            "--agent", settings.agent_address,
            "--agent-ca", f"{parts.SECRETS}/ca.crt",
            "--token-file", f"{parts.SECRETS}/token",
            "--folder", str(RESIDENTS),
        ],
        "env": [{"name": key, "value": value} for key, value in parts.variables(device).items()],
        "securityContext": dict(parts.CONTAINER_SECURITY),
        "terminationMessagePolicy": "File",
        "workingDir": str(SCRATCH),
        "resources": {"requests": cpus | both, "limits": both},
        "volumeMounts": [
            {"name": "tmp", "mountPath": str(SCRATCH)},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
            {"name": parts.SECRETS_VOLUME, "mountPath": parts.SECRETS, "readOnly": True},
        ],
    }  # fmt: skip
    if settings.image_pull_policy:
        made["imagePullPolicy"] = settings.image_pull_policy
    return made


def resident(plan: EnginePlan, slot: int, root: Path = RESIDENTS) -> keeper_pb2.Resident:
    """The order for a resident: the programs that are containers of a pod elsewhere."""
    folder = root / plan.workload.id
    endpoint = f"http://127.0.0.1:{ENDPOINT_PORT + slot}"
    spec = replace(
        plan.engine_spec(),
        model_dir=folder / "weights" / "models" / plan.workload.engine.model_version_id,
        endpoint=endpoint,
        scratch=folder / "tmp",
    )
    private = {"HOME": str(spec.scratch), "TMPDIR": str(spec.scratch)}
    environment = parts.variables(plan.accelerator) | OFFLINE | plan.kind.environment(spec)
    return keeper_pb2.Resident(
        workload_id=plan.workload.id,
        digest=digest(plan.workload),
        slot=slot,
        keeper=[
            "--engine", plan.kind.name,
            "--endpoint", endpoint,
            "--weights", str(folder / "weights"),
            "--adapter-bytes", str(plan.settings.engines.adapter_bytes),
            "--scratch", str(folder / "keeper"),
            "--port", str(DOOR_PORT + slot),
            "--health-port", str(HEALTH_PORT + slot),
        ],
        command=plan.kind.command(spec),
        environment=environment | private,
        memory_bytes=plan.memory_bytes + KEEPER_MEMORY,
        disk_bytes=plan.volume_bytes + plan.scratch_bytes,
        health_port=HEALTH_PORT + slot,
    )  # fmt: skip
