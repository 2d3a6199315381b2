"""Workloads of every shape, and the objects that they are rendered as.

`python -m tests.support.factories.kube_workloads` writes the golden files anew; look at the
difference.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass_agent.executors.kubernetes.render.shapes import Object, render
from windlass_agent.executors.kubernetes.settings import ClusterSettings

GOLDEN = Path(__file__).parents[2] / "unit/agent/kubernetes/render/golden"
GIB = 1024**3
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
COVERED = ("cpu", "memory", "nvidia.com/gpu", "amd.com/gpu")

NVIDIA: Object = {
    "resource": "nvidia.com/gpu",
    "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
    "runtime_class": "nvidia",
}
AMD: Object = {
    "resource": "amd.com/gpu",
    "queues": ["radeons"],
    "image": "ghcr.io/windlass/runner:0.1.0-rocm",
    "node_selector": {"feature.node.kubernetes.io/amd-gpu": "true"},
    "env": {"HSA_ENABLE_SDMA": "0"},
}
MIG: Object = {"resource": "nvidia.com/mig-1g.10gb"}
CLAIMED: Object = {
    "device_class": "gpu.example.com",
    "selector": 'device.attributes["gpu.example.com"].model == "LATEST-GPU-MODEL"',
    "device": "cpu",
}
OVERLAY: Object = {
    "metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "training"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "training"}],
        "securityContext": {"supplementalGroups": [44]},
        "volumes": [
            {"name": "python", "persistentVolumeClaim": {"claimName": "python", "readOnly": True}},
            {"name": "work", "emptyDir": {"sizeLimit": "100Gi"}},
        ],
        "containers": [
            {
                "name": "node",
                "image": "registry.example/runner:7",
                "env": [
                    {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"},
                    {"name": "HOME", "value": "/work"},
                ],
                "volumeMounts": [{"name": "python", "mountPath": "/opt/python", "readOnly": True}],
            }
        ],
    },
}


@dataclass(frozen=True)
class Case:
    """A workload, and the settings of its cluster's operator."""

    name: str
    workload: pb.Workload
    settings: Object = field(default_factory=dict)
    covered: tuple[str, ...] | None = COVERED

    def render(self, **settings: Any) -> list[Object]:
        """Returns its objects; further settings replace its own."""
        said = {"agent_ca": CA, **self.settings, **settings}
        return render(self.workload, ClusterSettings.model_validate(said), covered=self.covered)


def workload(
    *,
    job_id: str = "ftjob-AbC0123456789xyzABCDEFGh",
    attempt: int = 1,
    nodes: int = 1,
    gpus: int = 0,
    queue: str = "main",
    namespace: str = "team-a",
    **placement: Any,
) -> pb.Workload:
    """Returns a job as the control plane sends it."""
    return pb.Workload(
        id=job_id,
        kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
        owner="jobs",
        organization_id="org-1",
        project_id="proj_AbC",
        cluster_id="cluster-abc",
        generation=3,
        desired=pb.DESIRED_STATE_RUNNING,
        resources=jobs_pb2.Resources(gpus=gpus, cpus=2, memory_bytes=8 * GIB),
        placement=pb.Placement(namespace=namespace, queue=queue, **placement),
        job=pb.JobWorkload(
            job_id=job_id, attempt=attempt, backend="trl", framework="trl", num_nodes=nodes
        ),
    )


def cases() -> Iterator[Case]:
    """Returns one case of each shape and of each kind of device."""
    placed = workload(priority_class="urgent", node_selector={"zone": "a"})
    yield Case("job", placed)
    yield Case("job-without-kueue", workload(queue=""), covered=None)
    yield Case("job-covered-storage", workload(), covered=(*COVERED, "ephemeral-storage"))
    yield Case("job-nvidia", workload(gpus=2), {"accelerators": [AMD, NVIDIA]})
    yield Case("job-amd", workload(gpus=1, queue="radeons"), {"accelerators": [NVIDIA, AMD]})
    yield Case(
        "job-mig",
        workload(gpus=1),
        {"accelerators": [NVIDIA, MIG]},
        covered=("cpu", "memory", "nvidia.com/mig-1g.10gb"),
    )
    yield Case(
        "job-claimed",
        workload(gpus=2),
        {"accelerators": [CLAIMED]},
        covered=("cpu", "memory", "gpu.example.com"),
    )
    yield Case(
        "job-part",
        workload(gpus=1),
        {"accelerators": [CLAIMED | {"capacity": {"memory": "16Gi"}}]},
        covered=("cpu", "memory", "gpu.example.com"),
    )
    yield Case("job-overlay", workload(), {"overlay": OVERLAY})
    yield Case("indexed", workload(nodes=2, gpus=1), {"several_nodes": "indexed"})
    yield Case("jobset", workload(nodes=3, gpus=8))
    yield Case("trainjob", workload(), {"trainjob": True})
    yield Case("trainjob-nodes", workload(nodes=2, gpus=1), {"trainjob": True})


def main() -> None:
    """Writes the golden files."""
    GOLDEN.mkdir(exist_ok=True)
    for case in cases():
        text = yaml.safe_dump_all(case.render(), sort_keys=False)
        (GOLDEN / f"{case.name}.yaml").write_text(text)


if __name__ == "__main__":
    main()
