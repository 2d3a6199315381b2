"""Starts the programs of a cluster in order, and puts into it what every test finds there."""

import subprocess
from functools import partial
from pathlib import Path

from tests.cluster.kubectl import Kubectl
from tests.cluster.provision import assets, programs
from tests.cluster.provision.keeper import order
from tests.cluster.provision.site import Site
from tests.support.waiting import wait_until

START_SECONDS = 240
# Deployments by namespace, in the order in which they are put in.
JOBSET = ("jobset-system", "jobset-controller-manager")
LWS = ("lws-system", "lws-controller-manager")
TRAINER = ("kubeflow-system", "kubeflow-trainer-controller-manager")
KUEUE = ("kueue-system", "kueue-controller-manager")
# Accepted only once Kueue's webhook answers; a dry run leaves nothing behind.
PROBE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: probe}
"""


def start(site: Site, *, bare: bool = False) -> None:
    """Returns once the node is ready and, but on a bare cluster, the add-ons answer."""
    made = assets.make()
    (site.folder / "kwok-stages.yaml").write_text(
        (made / "manifests" / "kwok-stages.yaml").read_text()
    )
    wait_until(lambda: (site.folder / "control").exists(), "process 1 listens")
    for name in ("etcd", "apiserver", "containerd"):
        order(site.folder / "control", "start", name)
    wait_until(lambda: kubectl(site).works("get", "--raw", "/readyz"), "the API server is ready")
    for name in ("controller-manager", "scheduler", "coredns", "proxy"):
        order(site.folder / "control", "start", name)
    import_images(site, made / "images", "[bp]*" if bare else "*")
    order(site.folder / "control", "start", "kubelet")
    node = ("wait", "--for=condition=Ready", f"node/{site.node}", "--timeout=1s")
    wait_until(lambda: kubectl(site).works(*node), "the node is ready")
    order(site.folder / "control", "start", "policies")
    if not bare:
        install(site, made / "manifests")


def install(site: Site, manifests: Path) -> None:
    """Puts the add-ons in; Kueue last, since its webhook refuses Deployments until it runs."""
    for name in ("jobset", "trainer", "dra", "lws"):
        apply(site, manifests / f"{name}.yaml")
    managers = (JOBSET, TRAINER, LWS)
    wait_until(lambda: all(has_pods(site, one) for one in managers), "JobSet, Trainer and LWS run")
    apply(site, manifests / "kueue.yaml")
    apply(site, manifests / "runtimes.yaml")
    until_whole(site)


def until_whole(site: Site) -> None:
    """Returns once the add-ons answer: at first, or after something that they need was away."""
    for namespace, deployment in (JOBSET, TRAINER, LWS, KUEUE):
        available = ("wait", "--for=condition=Available", f"deployment/{deployment}")
        answers = partial(kubectl(site).works, *available, "-n", namespace, "--timeout=5s")
        wait_until(answers, f"{deployment} is available", START_SECONDS)
    probe = ("create", "--dry-run=server", "-f", "-")
    wait_until(lambda: kubectl(site).works(*probe, input=PROBE), "Kueue's webhooks answer")


def import_images(site: Site, folder: Path, pattern: str) -> None:
    """Gives containerd the images that no registry has."""
    ctr = [*inside(site), str(programs.program("containerd", "ctr")), "-n", "k8s.io"]
    wait_until(lambda: quiet([*ctr, "version"]).returncode == 0, "containerd listens")
    for archive in sorted(folder.glob(f"{pattern}.tar")):
        done = quiet([*ctr, "images", "import", str(archive)])
        if done.returncode:
            raise RuntimeError(f"{archive.name}: {done.stderr.strip()}")


def inside(site: Site) -> list[str]:
    """The start of a command that runs among the cluster's own processes."""
    return ["nsenter", f"--target={site.pid}", "--mount", "--net", "--pid", "--"]


def apply(site: Site, path: Path) -> None:
    """Applies a file of manifests, again until it is accepted."""
    command = ("apply", "--server-side", "--force-conflicts", "-f", str(path))
    wait_until(lambda: kubectl(site).works(*command), f"{path.name} is applied")


def has_pods(site: Site, deployment: tuple[str, str]) -> bool:
    """True where the deployment's pods exist, so that no webhook can refuse them any more."""
    return bool(kubectl(site)("get", "pods", "-n", deployment[0], "-o", "name"))


def kubectl(site: Site) -> Kubectl:
    """The administrator's kubectl, whose cache goes with the cluster."""
    program = programs.program("kubernetes", "kubectl")
    return Kubectl(program, site.kubeconfig(), site.folder / "kubectl")


def quiet(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command and returns what came of it."""
    return subprocess.run(command, capture_output=True, text=True, check=False)
