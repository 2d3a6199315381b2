"""The agent as a release of its chart, with the Windlass that it joins on this machine."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from tests.cluster.cluster import TestCluster
from tests.cluster.objects.chart import CHART, helm
from tests.cluster.provision.identities import Authority
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes.windlass import Windlass, free_port, make_single, running


@dataclass
class Platform:
    """Windlass on this machine, listening where pods of a cluster reach it."""

    windlass: Windlass
    address: str
    ca: str
    http: httpx.Client

    def json(self, method: str, path: str, **body: Any) -> Any:
        answer = self.http.request(method, f"/v1{path}", json=body or None)
        assert answer.is_success, answer.text
        return answer.json()

    def nodes(self, cluster: str) -> dict[str, Any]:
        """The nodes of a cluster's inventory."""
        found = self.json("GET", f"/clusters/{cluster}/inventory")["nodes"]
        return {node["name"]: node for node in found}

    def is_live(self, cluster: str) -> bool:
        return bool(self.json("GET", f"/clusters/{cluster}")["live"])


@contextlib.contextmanager
def platform(cluster: TestCluster) -> Iterator[Platform]:
    with reachable_folder() as folder:
        authority = Authority(folder / "pki")
        authority.issue("server", "windlass", [], [cluster.host])
        port = free_port()
        listener = {
            "listen": f"{cluster.host}:{port}",
            "tls": {
                "certificate": str(folder / "pki" / "server.crt"),
                "key": str(folder / "pki" / "server.key"),
            },
        }
        settings = {
            "agent": {"enabled": False},
            "grpc": listener,
            "sessions": {"kubernetes": {"listen": f"127.0.0.1:{free_port()}"}},
        }
        windlass = make_single(folder / "data", settings)
        try:
            with running(windlass), windlass.http() as http:
                ca = (folder / "pki" / "ca.crt").read_text()
                yield Platform(windlass, f"grpcs://{cluster.host}:{port}", ca, http)
        finally:
            remove_database(windlass.data)


@dataclass
class Installed:
    """A release in a namespace of its name, and the cluster that it registered as."""

    cluster: TestCluster
    name: str
    id: str
    values: dict[str, Any]

    def upgrade(self, **changes: Any) -> None:
        words = ("upgrade", "--install", self.name, str(CHART), "--namespace", self.name)
        helm(
            *words, "--wait", "--timeout=180s",
            values=self.values | changes, kubeconfig=self.cluster.kubeconfig,
        )  # fmt: skip

    def pods(self) -> list[str]:
        found = self.cluster.get("pods", "-n", self.name)["items"]
        return [pod["metadata"]["name"] for pod in found]

    def log(self) -> str:
        return self.cluster.kubectl("logs", f"deployment/{self.name}", "-n", self.name)


@contextlib.contextmanager
def installed(cluster: TestCluster) -> Iterator[tuple[Platform, Installed]]:
    """A platform and an agent of it, which runs this machine's Python in its pod."""
    name = cluster.namespace("agent")
    python = cluster.volumes(name)
    with platform(cluster) as plane:
        registered = plane.json("POST", "/clusters", name=name)
        values = {
            "controlPlane": {"address": plane.address, "ca": plane.ca},
            "registration": {"key": registered["registration_key"]},
            "image": {"repository": "windlass.local/busybox", "tag": "1", "pullPolicy": "Never"},
            "command": [python.program, "-m", "windlass_agent"],
            "extraVolumes": python.volumes,
            "extraVolumeMounts": python.mounts,
            "extraEnv": python.env,
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        }
        release = Installed(cluster, name, registered["id"], values)
        try:
            release.upgrade()
            yield plane, release
        except Exception:
            with contextlib.suppress(Exception):
                print(release.log()[-4000:])
            print(cluster.kubectl("get", "pods,events", "-n", name, check=False))
            raise
        finally:
            helm(
                *("uninstall", name, "--namespace", name, "--ignore-not-found", "--wait"),
                kubeconfig=cluster.kubeconfig,
            )
