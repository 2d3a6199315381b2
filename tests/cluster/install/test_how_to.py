"""The how-tos for operators, run as they are printed, on a real cluster with helm and kubectl."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.provision import programs
from tests.cluster.provision.site import REPOSITORY
from tests.cluster.stages.release import Platform, platform
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM
from tests.support.waiting import wait_until

ADD = "how-to/add-a-cluster.md"
QUOTA = "how-to/give-a-team-a-quota.md"


@dataclass
class Operator:
    """Somebody at a shell with `windlass`, `kubectl` and `helm`, who reads pages."""

    cluster: TestCluster
    plane: Platform
    # Of the agent: its namespace and its release.
    name: str
    folder: Path

    def follow(self, page: str, *, after: str = "", until: str = "") -> str:
        """Runs a part of a page; names that other tests may use too are this test's own."""
        own = self.name.removeprefix("agent-")
        instead = {
            "kubectl create namespace windlass-agent\n": "",
            "deploy/helm/windlass-agent": str(REPOSITORY / "deploy/helm/windlass-agent"),
            "grpcs://windlass.example.com:8443": self.plane.address,
            "install windlass-agent ": f"install {self.name} ",
            "deployment/windlass-agent": f"deployment/{self.name}",
            "-n windlass-agent": f"-n {self.name}",
            "team-": f"team-{own}-",
            "research": f"research-{own}",
            "h100": f"h100-{own}",
        }
        commands = pages.script(page, instead, after=after, until=until)
        return pages.run(f"{self._said()}{commands}", self._environment(), self.folder)

    def _said(self) -> str:
        """Variables that the pages before have set."""
        projects = self.plane.json("GET", "/projects")["data"]
        made = [one["id"] for one in projects if one["title"] == "Team A"]
        return f"project={made[0]}\n" if made else ""

    def _environment(self) -> dict[str, str]:
        windlass = self.plane.windlass
        tools = f"{self.folder / 'bin'}:{Path(PROGRAM[0]).parent}"
        return {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "WINDLASS_BASE_URL": windlass.url,
            "WINDLASS_API_KEY": windlass.owner_key,
        }


@contextlib.contextmanager
def an_operator(east: TestCluster, tmp_path: Path) -> Iterator[Operator]:
    """Nothing is installed yet, and no cluster registered."""
    name = east.namespace("agent")
    python = east.volumes(name)
    with platform(east) as plane:
        values = {
            "controlPlane": {"ca": plane.ca},
            "image": {"repository": "windlass.local/busybox", "tag": "1", "pullPolicy": "Never"},
            "command": [python.program, "-m", "windlass_agent"],
            "extraVolumes": python.volumes,
            "extraVolumeMounts": python.mounts,
            "extraEnv": python.env,
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        }
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
        _tools(tmp_path)
        operator = Operator(east, plane, name, tmp_path)
        try:
            yield operator
        except BaseException:
            said = ("logs", f"deployment/{name}", "-n", name)
            for words in (("get", "pods,events", "-n", name), said, (*said, "--previous")):
                print(east.kubectl(*words, check=False)[-4000:])
            raise
        finally:
            gone = f"helm uninstall {name} -n {name} --ignore-not-found --wait"
            pages.run(gone, operator._environment(), tmp_path)


def _tools(folder: Path) -> None:
    """`kubectl`, and a `helm` that brings the image of this place with each installation."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(programs.program("kubernetes", "kubectl"))
    values = f"--values {folder / 'values.yaml'}"
    wrapper = f'[ "$1" != install ] || set -- "$@" {values}\nexec {programs.program("helm")} "$@"\n'
    (tools / "helm").write_text(f"#!/bin/sh\n{wrapper}")
    (tools / "helm").chmod(0o755)


def test_the_pages_for_operators_are_true(east: TestCluster, tmp_path: Path) -> None:
    with an_operator(east, tmp_path) as operator:
        follow_all(operator)


def follow_all(operator: Operator) -> None:
    """Adds a cluster, gives a quota in it, comes back after a while, and takes it away."""
    plane, east = operator.plane, operator.cluster
    shown = operator.follow(ADD, until="When the agent was away for long")
    assert east.node in shown
    (cluster,) = plane.json("GET", "/clusters")["data"]
    path = f"/clusters/{cluster['id']}/assignments"
    wait_until(
        lambda: all(one["ready"] for one in plane.json("GET", path)["data"]), "its namespace"
    )
    (namespace,) = (one["namespace"] for one in plane.json("GET", path)["data"])
    east.remove_after("namespace", namespace)
    assert east.works("get", "serviceaccount", "windlass-runner", "-n", namespace)

    operator.follow(QUOTA, until="Take it away")
    queue = f"team-{operator.name.removeprefix('agent-')}-a"
    for made in (queue, queue[:-1] + "b"):
        east.remove_after("clusterqueue", made)
    east.remove_after("resourceflavor", f"h100-{operator.name.removeprefix('agent-')}")
    for made in plane.json("GET", path)["data"]:
        east.remove_after("namespace", made["namespace"])
    wait_until(lambda: east.works("get", "clusterqueue", queue), "the queue")
    spec = east.get("clusterqueue", queue)["spec"]
    (group,) = spec["resourceGroups"]
    (amounts,) = (flavor["resources"] for flavor in group["flavors"])
    gpus = next(one for one in amounts if one["name"] == "nvidia.com/gpu")
    assert (gpus["nominalQuota"], gpus["borrowingLimit"]) == ("8", "4")
    wait_until(
        lambda: all(one["ready"] for one in plane.json("GET", path)["data"]), "both projects"
    )
    observed = plane.json("GET", f"/clusters/{cluster['id']}/quota")
    assert observed["message"] == ""
    attainable = {
        quota["resource"]: quota["attainable"]
        for one in observed["cluster_queues"] if one["name"] == queue
        for quota in one["quotas"]
    }  # fmt: skip
    # Its own, and what the other lends.
    assert attainable["nvidia.com/gpu"] == 8 + 2

    before = json.dumps(plane.json("GET", f"/clusters/{cluster['id']}")["last_seen_at"])
    operator.follow(ADD, after="When the agent was away for long", until="Take it away")
    wait_until(lambda: plane.is_live(cluster["id"]), f"it is back, last seen at {before}")
    operator.follow(ADD, after="Take it away")
    assert plane.json("GET", "/clusters")["data"] == []
