"""Enforcement of the network policies of projects' namespaces and of the agent's chart."""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.cluster.cluster import TestCluster
from tests.cluster.objects import pods
from tests.cluster.objects.chart import granted
from tests.cluster.stages.release import installed
from tests.cluster.stages.settling import settled
from tests.support.waiting import wait_until

from windlass.kubernetes.labels import ENGINE_KIND, GUEST, JOB_KIND, KIND, MANAGED_BY

JOB, FEDERATED, ENGINE = (MANAGED_BY | {KIND: kind} for kind in (JOB_KIND, GUEST, ENGINE_KIND))
PLAIN: dict[str, str] = {}
PORT, RUNNERS = 7000, 8443


@dataclass(frozen=True)
class Pod:
    """One that serves on some ports, and asks others."""

    cluster: TestCluster
    namespace: str
    name: str
    address: str

    def reaches(self, address: str, port: int) -> bool:
        """True where something takes a connection there, whatever it speaks."""
        return self._does("nc", "-w", "2", address, str(port))

    def finds(self, name: str) -> bool:
        """True where a name has an address."""
        return self._does("nslookup", name)

    def _does(self, *words: str) -> bool:
        return self.cluster.works("exec", self.name, "-n", self.namespace, "--", *words)


def pod(
    cluster: TestCluster, namespace: str, name: str, labels: dict[str, str], *ports: int
) -> Pod:
    """A running one."""
    listed = " ".join(map(str, ports))
    serve = (
        "mkdir -p /tmp/www; echo hi > /tmp/www/index.html;"
        f" for port in {listed}; do httpd -p $port -h /tmp/www; done; sleep 1000"
    )
    made = pods.pod(namespace, name, pods.spec(cluster.image, ["sh", "-c", serve]))
    made["metadata"]["labels"] = labels
    wait_until(
        lambda: cluster.works("get", "serviceaccount", "default", "-n", namespace), "accounts"
    )
    cluster.apply(made)
    ready = ("wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=90s")
    cluster.kubectl(*ready)
    address = cluster.get("pod", name, "-n", namespace)["status"]["podIP"]
    return Pod(cluster, namespace, name, address)


class Hello(BaseHTTPRequestHandler):
    """Says that it was reached."""

    def do_GET(self) -> None:
        """An answer without words."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent."""


@contextlib.contextmanager
def serving(host: str) -> Iterator[int]:
    """The port of a server on this machine."""
    with ThreadingHTTPServer((host, 0), Hello) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def space(cluster: TestCluster) -> str:
    """A namespace that the agent is to make."""
    name = f"space-{secrets.token_hex(3)}"
    cluster.remove_after("namespace", name)
    return name


Way = tuple[Pod, str, int]


def settle(allowed: list[Way], refused: list[Way]) -> None:
    """Until the policies are in force, and all at once as they should be."""
    for caller, address, port in allowed:
        where = f"{caller.name} to {address}:{port}"
        wait_until(lambda: caller.reaches(address, port), f"{where} is open", 60)  # noqa: B023
    for caller, address, port in refused:
        where = f"{caller.name} to {address}:{port}"
        wait_until(lambda: not caller.reaches(address, port), f"{where} is closed", 60)  # noqa: B023
    assert [way for way in refused if way[0].reaches(*way[1:])] == []
    assert [way for way in allowed if not way[0].reaches(*way[1:])] == []


async def test_jobs_reach_each_other_and_what_their_cluster_names(
    east: TestCluster, tmp_path: Path
) -> None:
    rights = await asyncio.to_thread(granted, east, tmp_path)
    with serving(east.host) as store, serving(east.host) as excluded:
        egress = [
            {"cidr": f"{east.host}/32", "ports": [store]},
            {"cidr": "0.0.0.0/0", "excluded": [f"{east.host}/32"], "ports": [excluded]},
        ]
        async with settled(east, rights, egress=egress) as here:
            team, other = space(east), space(east)
            places = [here.assignment(team), here.assignment(other)]
            assert not (await here.bring_about(assignments=places)).assignment_errors
            ports = (PORT, RUNNERS, excluded)
            await asyncio.to_thread(walled, east, (team, other, rights.name), ports, store)


def walled(
    east: TestCluster, spaces: tuple[str, str, str], ports: tuple[int, int, int], store: int
) -> None:
    """Tries every way between two projects, an agent, a stranger and this machine."""
    team, other, home = spaces
    first, second = (pod(east, team, name, JOB, *ports) for name in ("first", "second"))
    engine = pod(east, team, "engine", ENGINE, *ports)
    federated, mate = (pod(east, team, name, FEDERATED, *ports) for name in ("federated", "mate"))
    # Not Windlass' own, so its owner's affair.
    bystander = pod(east, team, "bystander", PLAIN, *ports)
    theirs = pod(east, other, "theirs", JOB, *ports)
    agent = pod(east, home, "agent", PLAIN, *ports)
    stranger = pod(east, east.namespace(), "stranger", PLAIN, *ports)
    open_, excluded = PORT, ports[-1]
    settle(
        allowed=[
            (first, second.address, open_),
            (first, agent.address, RUNNERS),
            (first, east.host, store),
            (first, stranger.address, excluded),
            (federated, mate.address, open_),
            (federated, east.host, store),
            (federated, stranger.address, excluded),
            # An engine's door is its agent's alone.
            (agent, engine.address, RUNNERS),
            (engine, agent.address, RUNNERS),
            (engine, east.host, store),
            # By what stays open it shows that the ways below are there.
            (stranger, bystander.address, open_),
            (bystander, agent.address, open_),
            (bystander, east.host, excluded),
            (bystander, stranger.address, open_),
        ],
        refused=[
            (theirs, second.address, open_),
            (stranger, second.address, open_),
            (agent, second.address, open_),
            (bystander, second.address, open_),
            (engine, second.address, open_),
            (first, theirs.address, open_),
            (first, stranger.address, open_),
            (first, engine.address, open_),
            (first, agent.address, open_),
            (first, east.host, excluded),
            (federated, first.address, open_),
            (federated, stranger.address, open_),
            (federated, agent.address, RUNNERS),
            (first, federated.address, open_),
            (agent, engine.address, open_),
            (first, engine.address, RUNNERS),
            (federated, engine.address, RUNNERS),
            (theirs, engine.address, RUNNERS),
            (stranger, engine.address, RUNNERS),
            (engine, federated.address, open_),
            (engine, stranger.address, open_),
        ],
    )
    assert first.finds("kubernetes.default.svc.cluster.local")
    assert federated.finds("kubernetes.default.svc.cluster.local")
    assert engine.finds("kubernetes.default.svc.cluster.local")


def test_runners_alone_reach_the_agent(east: TestCluster) -> None:
    with installed(east) as (plane, release), serving(east.host) as elsewhere:
        wait_until(lambda: plane.is_live(release.id), "the agent joined")
        project = plane.json("POST", "/projects", title="walled")["id"]
        path = f"/clusters/{release.id}/assignments"
        team = plane.json("PUT", f"{path}/{project}", cluster_queue="")["namespace"]
        east.remove_after("namespace", team)
        wait_until(lambda: east.works("get", "namespace", team), "the project's namespace is made")
        (name,) = release.pods()
        address = east.get("pod", name, "-n", release.name)["status"]["podIP"]
        agent = Pod(east, release.name, name, address)
        runner = pod(east, team, "runner", JOB, PORT)
        neighbour = pod(east, release.name, "neighbour", PLAIN, PORT)
        stranger = pod(east, east.namespace(), "stranger", PLAIN, PORT)
        wait_until(lambda: runner.reaches(address, RUNNERS), "a runner reaches it")
        for caller in (neighbour, stranger):
            wait_until(lambda: not caller.reaches(address, RUNNERS), f"{caller.name} does not")  # noqa: B023
        assert runner.reaches(address, RUNNERS)
        # Nor does it reach others than the control plane and the Kubernetes API.
        wait_until(lambda: stranger.reaches(east.host, elsewhere), "somebody listens there")
        assert not agent.reaches(east.host, elsewhere)
        assert not agent.reaches(stranger.address, PORT)
        assert plane.is_live(release.id)
