"""Windlass on this machine, and an agent for each of two real clusters."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.provision.identities import Authority
from tests.cluster.provision.site import REPOSITORY
from tests.cluster.stages.agents import Agent, joined
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.engines import engine_section
from tests.support.processes import pages
from tests.support.processes.windlass import Windlass, free_port
from tests.support.waiting import wait_until

BASE = "tiny-llama"
JOB_BYTES = 1536 * MIB
# One job at a time.
QUOTA_BYTES = 2048 * MIB
TRUSTED = "/etc/platform/ca.crt"


@dataclass
class Project:
    """A team, and the key that it works with."""

    id: str
    key: str
    namespace: str


@dataclass
class Journey:
    """The platform, its clusters by name, and who may use them."""

    windlass: Windlass
    http: httpx.Client
    clusters: dict[str, TestCluster]
    # Where agents call.
    address: str
    # Ports of this machine that pods reach beside Windlass and their agent.
    others: list[int] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    # Its name, and that of its flavor and priority class: clusters have them for all namespaces.
    queue: str = field(default_factory=lambda: f"team-{secrets.token_hex(3)}")

    def egress(self, runner_port: int) -> list[dict[str, Any]]:
        """The egress of pods: Windlass and their agent, on this machine by all its names."""
        ports = [self.windlass.port, runner_port, *self.others]
        return [
            {"cidr": f"{cluster.host}/32", "ports": ports} for cluster in self.clusters.values()
        ]

    def json(
        self, method: str, path: str, key: str = "", *, organization: str = "", **body: Any
    ) -> Any:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        if organization:
            headers["OpenAI-Organization"] = organization
        answer = self.http.request(method, f"/v1{path}", json=body or None, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    def join(
        self,
        name: str,
        folder: Path,
        stack: contextlib.ExitStack,
        *,
        proxy: bool = False,
        torchtune: Path | None = None,
        serves: bool = False,
        vllm: Path | None = None,
        address: str = "",
    ) -> None:
        """Registers a cluster and starts its agent, with the rights that its chart grants.

        It calls at `address`, if that is another than those of others.

        A proxy's agent federates what is applied there; one with the interpreter of TorchTune's
        environment takes its jobs as well, and one that `serves` has images of engines,
        vLLM's too with the interpreter of that.
        """
        cluster = self.clusters[name]

        def there(home: str, port: int) -> dict[str, Any]:
            made = settings(cluster, home, port, self.egress(port), federation=proxy)
            if serves:
                made["engines"] = engine_section(made, vllm)
            return with_torchtune(made, torchtune) if torchtune else made

        agent = joined(
            self.http, cluster, folder, address=address or self.address, ca=self.windlass.ca,
            settings=there, values={"federation": {"enabled": proxy}},
        )  # fmt: skip
        self.agents[name] = stack.enter_context(agent)
        self.ids[name] = self.agents[name].cluster_id

    def share_out(
        self, name: str, *, memory: int, cpus: int = 2, devices: Mapping[str, int] | None = None
    ) -> None:
        """One queue for all teams of a cluster, which urgent ones preempt others in."""
        cluster = self.clusters[name]
        room = {"cpu": cpus, "memory": memory, **(devices or {})}
        quotas = [
            {"flavor": self.queue, "resource": resource, "nominal": nominal}
            for resource, nominal in room.items()
        ]
        queue = {"name": self.queue, "quotas": quotas, "within_cluster_queue": "LowerPriority"}
        path = f"/clusters/{self.ids[name]}/quota"
        self.json("PATCH", path, flavors=[{"name": self.queue}], cluster_queues=[queue])
        for kind in ("clusterqueue", "resourceflavor", "workloadpriorityclass"):
            cluster.remove_after(kind, self.queue)
        cluster.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": self.queue},
                "value": 1000,
            }
        )

    def team(
        self, name: str, *clusters: str, urgent: bool = False, organization: str = ""
    ) -> Project:
        """A project that may use these clusters, with its namespace ready there."""
        there = {"organization": organization}
        project = self.json("POST", "/projects", title=name, **there)["id"]
        made = self.json("POST", "/api_keys", name=name, project_id=project, **there)
        key = made["value"]
        namespace = ""
        for cluster in clusters:
            path = f"/clusters/{self.ids[cluster]}/assignments/{project}"
            priority = self.queue if urgent else ""
            made = self.json("PUT", path, cluster_queue=self.queue, priority_class=priority)
            namespace = made["namespace"]
            self.clusters[cluster].remove_after("namespace", namespace)
            wait_until(partial(self._ready, cluster, project), f"{name} is ready in {cluster}")
            self._equip(self.clusters[cluster], namespace)
        self.projects[name] = Project(project, key, namespace)
        return self.projects[name]

    def _ready(self, cluster: str, project: str) -> bool:
        found = self.json("GET", f"/clusters/{self.ids[cluster]}/assignments")["data"]
        return any(one["project_id"] == project and one["ready"] for one in found)

    def _equip(self, cluster: TestCluster, namespace: str) -> None:
        """This machine's Python, and whom it trusts: what an image would bring."""
        cluster.volumes(namespace)
        trusted = (self.windlass.ca or Path()).read_text()
        metadata = {"name": "platform", "namespace": namespace}
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata,
                "data": {"ca.crt": trusted},
            }
        )

    def job(self, job_id: str, team: str) -> dict[str, Any]:
        found: dict[str, Any]
        found = self.json("GET", f"/fine_tuning/jobs/{job_id}", key=self.projects[team].key)
        return found

    def events(self, job_id: str, team: str) -> list[str]:
        path = f"/fine_tuning/jobs/{job_id}/events?limit=500"
        listed = self.json("GET", path, key=self.projects[team].key)["data"]
        return [event["message"] for event in reversed(listed)]

    def reach(self, job_id: str, team: str, *states: str, seconds: float = 480) -> dict[str, Any]:
        """The job once it is in one of these states; fails when it ended otherwise.

        The seconds are for two cores that others use too.
        """

        def there() -> bool:
            job = self.job(job_id, team)
            ended = job["status"] in ("succeeded", "failed", "cancelled")
            assert job["windlass"]["state"] in states or not ended, (
                job["error"], self.events(job_id, team)[-20:],
            )  # fmt: skip
            return job["windlass"]["state"] in states

        try:
            wait_until(there, f"{job_id} is {' or '.join(states)}", seconds)
        except TimeoutError as error:
            error.add_note(f"{self.job(job_id, team)['windlass']} {self.events(job_id, team)[-9:]}")
            raise
        return self.job(job_id, team)


@contextlib.contextmanager
def platform(folder: Path, clusters: dict[str, TestCluster]) -> Iterator[tuple[Windlass, str]]:
    """Windlass, trusted by everything that this process starts."""
    hosts = [cluster.host for cluster in clusters.values()]
    Authority(folder / "pki").issue("server", "windlass", [], ["127.0.0.1", "localhost", *hosts])
    authority = folder / "pki" / "ca.crt"
    with trusting(authority):
        yield _described(folder, hosts[0], authority)


@contextlib.contextmanager
def trusting(authority: Path) -> Iterator[None]:
    """Has this process, and what it starts, trust an authority."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(authority)
    try:
        yield
    finally:
        os.environ.pop("SSL_CERT_FILE")
        if before is not None:
            os.environ["SSL_CERT_FILE"] = before


def _described(folder: Path, host: str, authority: Path) -> tuple[Windlass, str]:
    data = folder / "data"
    data.mkdir(mode=0o711)
    http, grpc, kubernetes = free_port(), free_port(), free_port()
    pair = {"certificate": f"{folder}/pki/server.crt", "key": f"{folder}/pki/server.key"}
    listener = {"listen": f"127.0.0.1:{kubernetes}", "ca": str(authority), **pair}
    document = {
        "data_dir": str(data),
        "http": {
            "host": "0.0.0.0", "port": http, "tls": pair, "public_url": f"https://{host}:{http}",
        },
        "grpc": {"listen": f"0.0.0.0:{grpc}", "tls": pair},
        "sessions": {"kubernetes": listener},
    }  # fmt: skip
    windlass = Windlass(data, http, ca=authority)
    windlass.configs["all"] = _write(data / "all.yaml", yaml.safe_dump(document))
    return windlass, f"grpcs://127.0.0.1:{grpc}"


def settings(
    cluster: TestCluster,
    home: str,
    port: int,
    egress: list[dict[str, Any]],
    *,
    federation: bool = False,
) -> dict[str, Any]:
    """The settings of jobs' pods: this machine's Python instead of an image of ours."""
    python = cluster.volumes(home)
    trust = {"name": "platform", "configMap": {"name": "platform"}}
    container = {
        "name": "node",
        "volumeMounts": [
            *python.mounts,
            {"name": "platform", "mountPath": str(Path(TRUSTED).parent), "readOnly": True},
        ],
        # The node has few.
        "resources": {"requests": {"cpu": "100m"}},
        "env": [
            {"name": "SSL_CERT_FILE", "value": TRUSTED},
            *(one for one in python.env if one["name"] == "PYTHONPATH"),
        ],
    }
    return {
        "image": cluster.image,
        "python": python.program,
        "agent_namespace": home,
        "agent_address": f"{cluster.host}:{port}",
        "sizes": {
            "memory_bytes": JOB_BYTES, "workdir_bytes": 512 * MIB, "tmp_bytes": 64 * MIB,
            "shm_bytes": 64 * MIB,
        },
        "deadlines": {"unreachable": 5, "grace": 20, "drain": 40},
        "egress": egress,
        "federation": federation,
        "overlay": {"spec": {"volumes": [*python.volumes, trust], "containers": [container]}},
    }  # fmt: skip


def with_torchtune(made: dict[str, Any], python: Path) -> dict[str, Any]:
    """Those of an image that has TorchTune too, as the page prints them for operators.

    Its interpreter comes with this repository.
    """
    assert python.is_relative_to(REPOSITORY), f"pods see {REPOSITORY} alone"
    (container,) = made["overlay"]["spec"]["containers"]
    container["env"].append({"name": "WINDLASS_TORCHTUNE_PYTHON", "value": str(python)})
    (printed,) = pages.blocks("how-to/train-with-torchtune.md", "yaml")
    return {**made, **yaml.safe_load(printed)}


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
