"""A real endpoint picker for a pool in a cluster, whose pods are rows of the API server alone.

Their addresses are this machine's, where the test serves in their place.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.objects.pods import pod, spec
from tests.cluster.provision import programs
from tests.support.environments.certificates import self_signed
from tests.support.processes import pages
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass.kubernetes import labels

MODULE = "sigs.k8s.io/gateway-api-inference-extension"
PAGE = "how-to/use-an-endpoint-picker.md"
POOL_CRD = "config/crd/bases/inference.networking.k8s.io_inferencepools.yaml"
POOLS = "inferencepools.inference.networking.k8s.io"
# Beside those of the default, which no test of ours is about.
CONFIG = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: prefix-cache-scorer
"""
START_SECONDS = 30
READY = "inference_pool_ready_pods"


@dataclass
class RealPicker:
    """EPP as a process of this machine, with a certificate that `ca` has."""

    cluster: TestCluster
    folder: Path
    namespace: str
    # Where replicas tell their load.
    load_port: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    health_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    ca: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def make_pool(self, model: str) -> str:
        """The pool of the page, for a model; returns its name."""
        crd = programs.module_folder("epp", MODULE) / POOL_CRD
        self.cluster.remove_after("customresourcedefinition", POOLS)
        self.cluster.apply(yaml.safe_load(crd.read_text()))
        self.cluster.kubectl("wait", "--for=condition=Established", f"crd/{POOLS}")
        (printed,) = (
            one for one in map(yaml.safe_load, pages.blocks(PAGE, "yaml")) if "kind" in one
        )
        printed["metadata"]["namespace"] = self.namespace
        printed["spec"]["selector"] = {"matchLabels": {labels.MODEL: model}}
        printed["spec"]["targetPorts"] = [{"number": self.load_port}]
        self.cluster.apply(printed)
        return str(printed["metadata"]["name"])

    def make_pod(self, name: str, address: str, model: str) -> None:
        """A pod that no node runs, and that seems to be ready at an address."""
        made = pod(self.namespace, name, spec(self.cluster.image, ["true"]))
        made["metadata"].setdefault("labels", {})[labels.MODEL] = model
        made["spec"]["schedulingGates"] = [{"name": "windlass.dev/never"}]
        self.cluster.apply(made)
        self.mark(name, address, ready=True)

    def mark(self, name: str, address: str, *, ready: bool) -> None:
        """Has a pod be ready, or not."""
        condition = {"type": "Ready", "status": str(ready)}
        addresses = {"podIP": address, "podIPs": [{"ip": address}]}
        status = {"phase": "Running", "conditions": [condition]} | addresses
        patch = yaml.safe_dump({"status": status})
        where = ("--subresource=status", "--type=merge", "-n", self.namespace)
        self.cluster.kubectl("patch", "pod", name, *where, "-p", patch)

    async def start(self, pool: str) -> None:
        """Starts it, and waits until it knows the load of a replica."""
        config, log = self.folder / "config.yaml", self.folder / "epp.log"
        config.write_text(CONFIG)
        words = {
            "--pool-name": pool,
            "--pool-namespace": self.namespace,
            "--config-file": config,
            "--grpc-port": self.port,
            "--grpc-health-port": self.health_port,
            "--metrics-port": self.metrics_port,
            "--cert-path": self.folder,
            "--metrics-endpoint-auth": "false",
            "--tracing": "false",
            "--enable-pprof": "false",
        }
        command = [
            str(programs.program("epp")),
            *(f"{key}={value}" for key, value in words.items()),
        ]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env=os.environ | {"KUBECONFIG": str(self.cluster.kubeconfig)},
                stdout=output,
                stderr=output,
            )
        try:
            await until(lambda: self.gauge(READY) >= 1, START_SECONDS)
        except AssertionError:
            raise AssertionError(log.read_text()[-4000:]) from None

    def gauge(self, name: str) -> float:
        """A sum of its own metrics; -1 while it does not answer."""
        try:
            page = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).text
        except httpx.HTTPError:
            return -1
        lines = [line for line in page.splitlines() if line.startswith(name)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def kill(self) -> None:
        """Ends it by kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None


@contextmanager
def real_picker(
    cluster: TestCluster, folder: Path, namespace: str = "", **fields: Any
) -> Iterator[RealPicker]:
    """A picker that is not started yet, by default with a namespace of its own."""
    cluster.own()
    certificate, _ = self_signed(folder)
    made = RealPicker(cluster, folder, namespace or cluster.namespace("picker"), **fields)
    made.ca = certificate.read_text()
    try:
        yield made
    finally:
        made.kill()
