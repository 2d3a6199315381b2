"""The same tests on a cluster of somebody's own, such as kind's or a real one.

KUBECONFIG names it. `east` is its current context, `west` the context that CLUSTER_WEST names.
CLUSTER_HOST is this machine's address as its pods reach it, by default the one that leads to the
API server. CLUSTER_IMAGE is an image with a shell that runs as non-root.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.kubectl import Kubectl
from tests.cluster.provision import programs

IMAGE = "busybox:1.37"


def kubeconfig() -> str:
    """The value of KUBECONFIG; empty if the tests are to start clusters themselves."""
    return os.environ.get("KUBECONFIG", "")


def cluster(name: str, made: ExitStack) -> TestCluster:
    """Their cluster; a skip that says what it lacks."""
    context = os.environ.get("CLUSTER_WEST", "") if name == "west" else ""
    if name == "west" and not context:
        pytest.skip("needs two clusters: CLUSTER_WEST names the second context of KUBECONFIG")
    folder = Path(made.enter_context(tempfile.TemporaryDirectory(prefix="windlass-kubectl-")))
    view = minified(folder / "kubeconfig", context)
    kubectl = Kubectl(program(), folder / "kubeconfig", folder / "cache")
    if not kubectl.works("get", "crd", "clusterqueues.kueue.x-k8s.io"):
        pytest.skip(f"the cluster of KUBECONFIG={kubeconfig()} has no Kueue, or does not answer")
    api = view["clusters"][0]["cluster"]["server"]
    return TestCluster(
        name=name,
        kubeconfig=folder / "kubeconfig",
        host=os.environ.get("CLUSTER_HOST") or address_towards(api),
        api=api,
        image=os.environ.get("CLUSTER_IMAGE", IMAGE),
        node=kubectl("get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"),
        kubectl=kubectl,
        made=made,
    )


def minified(path: Path, context: str) -> dict[str, Any]:
    """Writes and returns the part of their kubeconfig that is about one context."""
    command = [program(), "config", "view", "--raw", "--flatten", "--minify", "-o", "json"]
    if context:
        command += ["--context", context]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"KUBECONFIG={kubeconfig()}: {done.stderr.strip()}")
    path.touch(mode=0o600)
    path.write_text(done.stdout)
    view: dict[str, Any] = json.loads(done.stdout)
    return view


def program() -> str:
    """The kubectl that was built, or the system's."""
    try:
        return str(programs.program("kubernetes", "kubectl"))
    except programs.Unbuilt:
        return shutil.which("kubectl") or "kubectl"


def address_towards(url: str) -> str:
    """This machine's address on the way to a URL."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname, parts.port or 443))
        address: str = probe.getsockname()[0]
    return address
