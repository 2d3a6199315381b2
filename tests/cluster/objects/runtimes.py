"""The chart of runtimes: rendered, or put into a cluster under names of one test."""

import secrets
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.objects.chart import helm
from tests.cluster.provision.site import REPOSITORY
from tests.support.waiting import wait_until

CHART = REPOSITORY / "deploy" / "helm" / "windlass-runtimes"
MANIFESTS = REPOSITORY / "deploy" / "manifests" / "runtimes"
FRAMEWORKS = ("trl", "torchtune")
MODELS = {
    "llama3_2_1B": "llama3.2-1b",
    "llama3_2_3B": "llama3.2-3b",
    "qwen2_5_1_5B": "qwen2.5-1.5b",
}
FRAMEWORK = "trainer.kubeflow.org/framework"
Object = dict[str, Any]


def rendered(values: Object | None = None) -> list[Object]:
    """The chart's objects."""
    release = "windlass-runtimes"
    text = helm("template", release, str(CHART), "--namespace", release, values=values or {})
    return [document for document in yaml.safe_load_all(text) if document]


def enabled(**more: Any) -> Object:
    """Values that switch every runtime on; `more` are values of both frameworks."""
    return {
        framework: {key: {"enabled": True} for key in MODELS} | more for framework in FRAMEWORKS
    }


def manifests() -> dict[Path, Object]:
    """The plain form of every runtime, with what kustomize reads, by path."""
    found: dict[Path, Object] = {}
    values = yaml.safe_load((MANIFESTS / "values.yaml").read_text())
    for item in rendered(values):
        folder = MANIFESTS / item["metadata"]["labels"][FRAMEWORK]
        found[folder / f"{item['metadata']['name']}.yaml"] = item
    for framework in FRAMEWORKS:
        folder = MANIFESTS / framework
        files = [path.name for path in found if path.parent == folder]
        found[folder / "kustomization.yaml"] = kustomization(files)
    found[MANIFESTS / "kustomization.yaml"] = kustomization(list(FRAMEWORKS))
    return found


def kustomization(resources: list[str]) -> Object:
    """The kustomization of files or folders."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    }


def install(cluster: TestCluster, **more: Any) -> dict[tuple[str, str], Object]:
    """Puts every runtime in, by framework and model; they go with the test.

    Kubeflow tells a model by the three parts of a runtime's name, so the first part is ours.
    """
    found = {}
    for framework in FRAMEWORKS:
        prefix = f"t{secrets.token_hex(3)}"
        values = enabled(namePrefix=prefix, **more)
        for item in rendered(values):
            if item["metadata"]["labels"][FRAMEWORK] == framework:
                name = item["metadata"]["name"]
                cluster.remove_after("clustertrainingruntime", name)
                found[framework, name.removeprefix(f"{prefix}-")] = item
    cluster.apply(*found.values())
    return found


def workspace(cluster: TestCluster, namespace: str, job: str, folder: Path) -> Path:
    """Has a folder of this machine be the volume that a TrainJob will claim for its workspace."""
    cluster.own()
    folder.mkdir()
    # Pods come as nobody, and the volume is not of a kind whose group Kubernetes changes.
    folder.chmod(0o777)
    name = f"{namespace}-{job}"
    cluster.remove_after("persistentvolume", name)
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "20Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "",
                # As JobSet names the claim.
                "claimRef": {"namespace": namespace, "name": f"initializer-{job}"},
                "hostPath": {"path": str(folder), "type": "Directory"},
            },
        }
    )
    return folder


def train_job(namespace: str, name: str, runtime: Object, trainer: Object | None) -> Object:
    """A TrainJob as somebody writes it who knows nothing of Windlass."""
    reference = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": runtime["kind"],
        "name": runtime["metadata"]["name"],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runtimeRef": reference} | ({"trainer": trainer} if trainer is not None else {}),
    }


def job_set(cluster: TestCluster, namespace: str, name: str) -> Object:
    """The JobSet that Kubeflow Trainer makes of a TrainJob."""
    path = ("jobset", name, "-n", namespace)
    wait_until(lambda: cluster.works("get", *path), f"{name} becomes a JobSet")
    return cluster.get(*path)


def container(item: Object, job: str = "node") -> Object:
    """The one container of a job of a JobSet or of a runtime."""
    spec = item["spec"]
    jobs = (spec.get("template", {}).get("spec") or spec)["replicatedJobs"]
    (pod,) = [one["template"]["spec"]["template"]["spec"] for one in jobs if one["name"] == job]
    (only,) = pod["containers"]
    found: Object = only
    return found
