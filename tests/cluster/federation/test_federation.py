"""Jobs that are applied to one real cluster and run in another, with nothing but kubectl."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.journey import QUOTA_BYTES, Journey, platform
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes import pages
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(900)
PAGE = "how-to/federate-a-job.md"
TEAM = "federated"


@dataclass
class Federation:
    """A project with a namespace in each of two clusters: the proxy east, and west."""

    east: TestCluster
    west: TestCluster
    namespace: str
    # Where Windlass and the agents keep their logs.
    folder: Path

    def apply(self, name: str, spec: dict[str, Any], kind: str = "Job") -> None:
        """Applies an object at the proxy."""
        version = "batch/v1" if kind == "Job" else "jobset.x-k8s.io/v1alpha2"
        metadata = {"name": name, "namespace": self.namespace}
        managed = {"managedBy": "windlass.dev/federation"}
        item = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": managed | spec}
        self.east.apply(item)

    def ends(self, item: str) -> tuple[str, dict[str, Any]]:
        """The end of an object at the proxy, and its status then."""

        def ended() -> bool:
            return bool(self._ends(item))

        with self.shown():
            wait_until(ended, f"{item} has ended", 240)
        found = self.east.get(*item.split("/"), "-n", self.namespace)
        return self._ends(item)[0], found

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Prints what both clusters and their agents have to say should the block fail."""
        try:
            yield
        except Exception:
            for cluster in (self.east, self.west):
                what = "jobs,jobsets,pods,events,configmaps"
                print(cluster.kubectl("get", what, "-n", self.namespace, check=False)[-4000:])
            for log in sorted(self.folder.glob("*/*.log")):
                print(log, log.read_text(errors="replace")[-3000:], sep="\n")
            raise

    def _ends(self, item: str) -> list[str]:
        found = self.east.get(*item.split("/"), "-n", self.namespace)
        conditions = found.get("status", {}).get("conditions", [])
        ends = ("Complete", "Completed", "Failed")
        return [
            one["type"] for one in conditions if one["type"] in ends and one["status"] == "True"
        ]

    def count(self, cluster: TestCluster, kind: str) -> int:
        """The number of objects in the project's namespace of a cluster."""
        return len(cluster.get(kind, "-n", self.namespace)["items"])

    def names(self, cluster: TestCluster) -> set[str]:
        """Of the guests that a cluster has, by the names that they were given."""
        found = cluster.get("jobs", "-n", self.namespace)["items"]
        marks = (one["metadata"].get("annotations", {}) for one in found)
        return {one["windlass.dev/name"] for one in marks if "windlass.dev/name" in one}

    def log(self, name: str) -> str:
        """The end of a log, as the proxy has it."""
        words = ("get", "configmap", name, "-n", self.namespace, "-o", "jsonpath={.data.log}")
        return self.east.kubectl(*words, check=False)

    def follow(self, folder: Path) -> str:
        """Runs the page as it is printed."""
        tools = folder / "bin"
        tools.mkdir()
        (tools / "kubectl").symlink_to(self.east.kubectl.program)
        environment = {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(self.east.kubeconfig),
            "namespace": self.namespace,
        }
        script = pages.script(PAGE, {"busybox:1.37": self.east.image})
        return pages.run(script, environment, folder)


@pytest.fixture(scope="module")
def federation(clusters: Clusters) -> Iterator[Federation]:
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(clusters.open(name)) for name in ("east", "west")}
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, found))
        stack.callback(remove_database, windlass.data)
        stack.enter_context(running(windlass))
        made = Journey(windlass, stack.enter_context(windlass.http()), found, address)
        for name in found:
            made.join(name, folder / name, stack, proxy=name == "east")
            made.share_out(name, memory=QUOTA_BYTES)
        project = made.team(TEAM, *found)
        yield Federation(found["east"], found["west"], project.namespace, folder)


def job(image: str, script: str, **fields: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "50m", "memory": "32Mi"}}
    container = {"name": "main", "image": image, "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "containers": [container | {"resources": resources}]}
    return {"backoffLimit": 0, "template": {"spec": pod | fields}}


def test_the_page_is_true(federation: Federation, tmp_path: Path) -> None:
    with federation.shown():
        said = federation.follow(tmp_path)
    assert "\nwest\n" in f"\n{said}"
    assert "Runs in cluster west" in said
    assert "Hello from fed-" in said
    # It ended there too.
    assert "hello" not in federation.names(federation.west)


def test_status_comes_back_as_it_is(federation: Federation) -> None:
    spec = job(federation.east.image, "echo to be seen; exit 3")
    federation.apply("fails", spec)
    end, found = federation.ends("job/fails")
    assert end == "Failed"
    assert found["status"]["failed"] == 1
    assert found["status"]["startTime"]
    assert not federation.count(federation.east, "pods"), "nothing runs at the proxy"
    there = federation.west.get("jobs", "-n", federation.namespace)["items"]
    named = "windlass.dev/name"
    (ours,) = (one for one in there if one["metadata"]["annotations"].get(named) == "fails")
    assert ours["status"]["conditions"] == found["status"]["conditions"]
    assert ours["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    made = f"windlass.dev/kind=guest,job-name={ours['metadata']['name']}"
    (pod,) = federation.west.get("pods", "-l", made, "-n", federation.namespace)["items"]
    # Nothing in it speaks to the cluster's API, or could pass for a runner.
    assert pod["spec"]["serviceAccountName"] == "default"
    assert "serviceAccountToken" not in json.dumps(pod["spec"].get("volumes", []))
    name = "job-fails.windlass-log"
    wait_until(lambda: "to be seen" in federation.log(name), "its log is at the proxy")


def test_a_job_set_runs_too(federation: Federation) -> None:
    template = {"spec": job(federation.east.image, "echo $JOB_COMPLETION_INDEX")}
    jobs = [{"name": "a", "replicas": 2, "template": template}]
    federation.apply("pair", {"replicatedJobs": jobs}, "JobSet")
    end, found = federation.ends("jobset/pair")
    assert end == "Completed"
    assert found["status"]["terminalState"] == "Completed"
    assert found["metadata"]["annotations"]["windlass.dev/cluster"] == "west"


def test_what_may_not_run_fails_where_it_was_applied(federation: Federation) -> None:
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    federation.apply("nosy", job(federation.east.image, "true", volumes=volumes))
    end, found = federation.ends("job/nosy")
    assert end == "Failed"
    (said,) = (one for one in found["status"]["conditions"] if one["type"] == "Failed")
    assert said["reason"] == "NotFederated"
    assert "volumes[0].secret cannot be federated" in said["message"]
    federation.east.kubectl("delete", "job", "nosy", "-n", federation.namespace, "--timeout=60s")


def test_deleting_it_ends_it_there_first(federation: Federation) -> None:
    federation.apply("sleeps", job(federation.east.image, "sleep 3600"))

    def runs() -> bool:
        status = federation.east.get("job", "sleeps", "-n", federation.namespace)["status"]
        return bool(status.get("ready") == 1)

    wait_until(runs, "it runs", 240)
    words = ("delete", "job", "sleeps", "-n", federation.namespace, "--timeout=240s")
    with federation.shown():
        federation.east.kubectl(*words)
    names = federation.names(federation.west)
    assert "sleeps" not in names


def test_an_object_outside_projects_is_left_alone(federation: Federation) -> None:
    namespace = federation.east.namespace("stranger")
    spec = {"managedBy": "windlass.dev/federation", **job(federation.east.image, "true")}
    metadata = {"name": "alone", "namespace": namespace}
    federation.east.apply(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    )
    # Whatever its agent does, it has done by the time that it ran another one.
    federation.apply("after", job(federation.east.image, "true"))
    federation.ends("job/after")
    found = federation.east.get("job", "alone", "-n", namespace)
    assert "finalizers" not in found["metadata"], json.dumps(found["metadata"])
    assert "alone" not in federation.names(federation.west)
