"""The agent's chart: rendered, or installed into a cluster for one test."""

import base64
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.provision import programs
from tests.cluster.provision.site import REPOSITORY

CHART = REPOSITORY / "deploy" / "helm" / "windlass-agent"
ADDRESS = "grpcs://windlass.example.com:8443"


class HelmError(RuntimeError):
    """helm failed; the message is what it said."""


def helm(
    *words: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None
) -> str:
    """The output of helm."""
    command = [str(programs.program("helm")), *words]
    if values is not None:
        command += ["--values", "-"]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    text = yaml.safe_dump(values) if values is not None else ""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmError(done.stderr.strip())
    return done.stdout


def rendered(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = "windlass-agent",
    namespace: str = "windlass-agent",
) -> list[dict[str, Any]]:
    """The chart's objects."""
    wanted = {"controlPlane": {"address": ADDRESS}, "registration": {"existingSecret": "key"}}
    text = helm(
        *("template", release, str(CHART), "--namespace", namespace),
        values={**wanted, **(values or {})},
    )
    return [document for document in yaml.safe_load_all(text) if document]


@dataclass(frozen=True)
class Rights:
    """Permissions that the chart gives an agent, in a cluster without the agent itself.

    `kubeconfig` is that of the agent's account; its namespace and its release are named alike.
    """

    name: str
    kubeconfig: Path


def granted(cluster: TestCluster, folder: Path, values: Mapping[str, Any] | None = None) -> Rights:
    """Puts the chart's accounts, roles and policies into a namespace of the test's own."""
    name = cluster.namespace("agent")
    kinds = ("Deployment", "PodDisruptionBudget", "NetworkPolicy")
    objects = rendered(values, release=name, namespace=name)
    kept = [item for item in objects if item["kind"] not in kinds]
    for item in kept:
        if "namespace" not in item["metadata"]:
            kind, made = item["kind"], item["metadata"]["name"]
            cluster.remove_after(kind.lower(), made)
    cluster.apply(*kept)
    token = cluster.kubectl("create", "token", name, "-n", name, "--duration=4h").strip()
    path = folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(kubeconfig_of(cluster, token)))
    return Rights(name, path)


def kubeconfig_of(cluster: TestCluster, token: str) -> dict[str, Any]:
    """Of whoever bears a token."""
    config = json.loads(cluster.kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    there: dict[str, Any] = config["clusters"][0]["cluster"]
    if authority := there.pop("certificate-authority", ""):
        data = base64.b64encode(Path(authority).read_bytes()).decode()
        there["certificate-authority-data"] = data
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": there}],
        "users": [{"name": "agent", "user": {"token": token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "agent"}}],
        "current-context": "it",
    }
