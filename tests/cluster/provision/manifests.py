"""The official manifests of what runs in a cluster, rendered from Go's module cache.

They stay as they are but for the image, its pull policy and the resources that they ask for.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.provision.programs import module_folder, program

KUEUE = "sigs.k8s.io/kueue"
JOBSET = "sigs.k8s.io/jobset"
LWS = "sigs.k8s.io/lws"
TRAINER = "github.com/kubeflow/trainer/v2"
KWOK = "sigs.k8s.io/kwok"
DRA = "sigs.k8s.io/dra-example-driver"
REQUESTS = {"cpu": "10m", "memory": "64Mi"}
DEVICES = 8


def write_manifests(folder: Path) -> None:
    """Writes a file for each add-on; needs Go, and the modules that the programs were built of."""
    kueue = module_folder("kueue", KUEUE)
    save(folder / "kueue.yaml", adapt(kustomize(kueue / "config/default"), "kueue"))
    jobset = module_folder("jobset", JOBSET)
    save(folder / "jobset.yaml", adapt(kustomize(jobset / "config/default"), "jobset"))
    lws = module_folder("lws", LWS)
    save(folder / "lws.yaml", adapt(kustomize(lws / "config/default"), "lws"))
    manager, runtimes = trainer()
    save(folder / "trainer.yaml", adapt(manager, "trainer"))
    save(folder / "runtimes.yaml", runtimes)
    save(folder / "dra.yaml", adapt(dra(), "dra"))
    stages = module_folder("kwok", KWOK) / "kustomize/stage/fast"
    save(folder / "kwok-stages.yaml", kustomize(stages))


def trainer() -> tuple[str, str]:
    """Kubeflow Trainer without its JobSet, which would come from a URL, and its runtimes."""
    source = module_folder("trainer", TRAINER) / "manifests"
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "manifests"
        shutil.copytree(source, copy, copy_function=shutil.copyfile)
        for folder in copy.rglob("*"):
            folder.chmod(0o755)
        overlay = copy / "overlays/manager/kustomization.yaml"
        lines = overlay.read_text().splitlines(keepends=True)
        overlay.write_text("".join(line for line in lines if "third-party/jobset" not in line))
        return kustomize(overlay.parent), kustomize(copy / "overlays/runtimes")


def dra() -> str:
    """The chart of the DRA driver, in a namespace of its own."""
    chart = module_folder("dra", DRA) / "deployments/helm/dra-example-driver"
    values = [f"kubeletPlugin.numDevices={DEVICES}", "webhook.enabled=false"]
    command = [str(program("helm")), "template", "dra", str(chart), "--namespace", "dra-driver"]
    command += [part for value in values for part in ("--set", value)]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dra-driver"}}
    return yaml.safe_dump(namespace) + "---\n" + output(command)


def kustomize(folder: Path) -> str:
    """The output of `kubectl kustomize` for a folder."""
    return output([str(program("kubernetes", "kubectl")), "kustomize", str(folder)])


def adapt(manifests: str, image: str) -> str:
    """Has every pod run an image of ours with few resources."""
    documents = [document for document in yaml.safe_load_all(manifests) if document]
    for document in documents:
        for container in containers(document):
            container["image"] = f"windlass.local/{image}:1"
            container["imagePullPolicy"] = "Never"
            container.setdefault("resources", {})["requests"] = REQUESTS
        if document["kind"] == "Deployment":
            # The others of a manager only wait for the lease of the first.
            document["spec"]["replicas"] = 1
    return yaml.safe_dump_all(documents)


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers of a Deployment or DaemonSet."""
    if document["kind"] not in ("Deployment", "DaemonSet"):
        return []
    found: list[dict[str, Any]] = document["spec"]["template"]["spec"]["containers"]
    return found


def save(path: Path, text: str) -> None:
    """Writes a file of manifests."""
    path.write_text(text)


def output(command: list[str]) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
