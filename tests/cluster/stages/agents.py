"""Real agents as processes of this machine, with the rights of their chart and no others."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.objects.chart import granted
from tests.support.processes import warm
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

# The cluster section of an agent's settings, by its namespace and the port where runners call.
Settings = Callable[[str, int], dict[str, Any]]


@dataclass
class Agent:
    """The agent of a registered cluster; it keeps its credential from life to life."""

    cluster_id: str
    # An administrator's.
    http: httpx.Client
    # Where runners call.
    port: int
    arguments: list[str]
    environment: dict[str, str]
    log: Path
    process: warm.Process = field(init=False)

    def start(self) -> None:
        """Begins a life."""
        with self.log.open("ab") as log:
            self.process = warm.start(
                "windlass_agent",
                *self.arguments,
                environment=os.environ | self.environment,
                log=log,
            )

    def kill(self) -> None:
        """Ends a life by kill -9."""
        self.process.kill()
        self.process.wait()

    def listens(self) -> bool:
        """True where it hears runners, so has taken over what there is."""
        with socket.socket() as probe:
            probe.settimeout(0.2)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def lives(self) -> bool:
        """True where the control plane hears it; fails when its process has ended."""
        assert self.process.poll() is None, self.log.read_text()[-3000:]
        answer = self.http.get(f"/v1/clusters/{self.cluster_id}")
        return bool(answer.raise_for_status().json()["live"])


@contextmanager
def joined(
    http: httpx.Client,
    cluster: TestCluster,
    folder: Path,
    *,
    address: str,
    settings: Settings,
    ca: Path | None = None,
    values: Mapping[str, Any] | None = None,
) -> Iterator[Agent]:
    """Registers a cluster by its name; its agent has joined, and ends with the block.

    `address` is where agents call, `folder` a new one of this agent's own, `values` the chart's.
    """
    folder.mkdir()
    rights, port = granted(cluster, folder, values), free_port()
    made = http.post("/v1/clusters", json={"name": cluster.name}).raise_for_status().json()
    (folder / "key").write_text(made["registration_key"])
    (folder / "cluster.yaml").write_text(yaml.safe_dump(settings(rights.name, port)))
    options = {
        "--control-plane": address,
        "--registration-key-file": str(folder / "key"),
        "--executor": "kubernetes",
        "--kubeconfig": str(rights.kubeconfig),
        "--cluster-file": str(folder / "cluster.yaml"),
        "--runner-port": str(port),
        "--data": str(folder / "data"),
    } | ({"--ca-file": str(ca)} if ca else {})
    arguments = list(sum(options.items(), ()))
    names = {"WINDLASS_AGENT_ACCOUNT": rights.name, "WINDLASS_AGENT_ROLES": rights.name}
    agent = Agent(made["id"], http, port, arguments, names, folder / "agent.log")
    agent.start()
    try:
        wait_until(agent.lives, f"the agent of {cluster.name} joined")
        yield agent
    finally:
        agent.process.terminate()
        agent.process.wait(30)
