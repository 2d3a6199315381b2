"""Clusters, assignments and quota by the command, against a real server and an agent's calls."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from tests.support.agents.cluster_agent import AgentClient
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass, make_single, running

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core.app import runtime_dir

GPU = "nvidia.com/gpu"
DOCUMENT = """
flavors:
- name: h100
  node_labels: {gpu: h100}
cluster_queues:
- name: team-a
  cohort: all
  quotas:
  - {flavor: h100, resource: cpu, nominal: 1.5}
  - {flavor: h100, resource: memory, nominal: 64Gi}
  - {flavor: h100, resource: nvidia.com/gpu, nominal: 8, borrowing_limit: 4}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    settings = {"agent": {"enabled": False}}
    # An agent of ours comes by the socket of the one process.
    single = make_single(tmp_path_factory.mktemp("cli") / "data", settings)
    with running(single, divisible=False) as server:
        yield server


@pytest.fixture
def shell(server: Windlass, tmp_path: Path) -> Shell:
    return Shell(server, tmp_path)


def observed(server: Windlass, key: str, *items: pb.InventoryItem, **fields: Any) -> pb.ClusterSpec:
    """An agent enrols, says what it sees, and answers what it is told to bring about."""

    async def live() -> pb.ClusterSpec:
        address = f"unix:{runtime_dir(server.data) / 'windlass.sock'}"
        async with grpc.aio.insecure_channel(address) as channel:
            request = pb.EnrollRequest(registration_key=key)
            enrolled = await rpc.ClustersAgentServiceStub(channel).Enroll(request)
            agent = AgentClient(channel, enrolled.credential, executor="kubernetes")
            spec = (await agent.watch()).spec
            await agent.heartbeat()
            status = pb.SpecStatus(revision=spec.revision, **fields)
            await agent.observe(*items, snapshot=True, status=status)
            return spec

    return asyncio.run(live())


def table(text: str) -> list[dict[str, str]]:
    """Rows of a printed table; no cell of these holds two spaces."""
    header, *rows = [
        [cell.strip() for cell in line.split("  ") if cell] for line in text.split("\n")
    ]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_clusters_way(shell: Shell) -> None:
    made = shell.object("clusters", "register", "west")
    rekeyed = shell.object("clusters", "rekey", "west")
    assert rekeyed["id"] == made["id"]
    assert rekeyed["registration_key"] != made["registration_key"]
    node = pb.NodeState(
        name="worker-1", ready=True, schedulable=True, cpu_millis=64_000, memory_bytes=2**36,
        cpu_millis_used=1500,
        accelerators=[pb.Accelerator(resource=GPU, product="H100", capacity=8, allocatable=8,
                                     running=3)],
    )  # fmt: skip
    queue = pb.LocalQueue(namespace="team", name="main", cluster_queue="team-a", active=True)
    observed(
        shell.server,
        str(rekeyed["registration_key"]),
        pb.InventoryItem(key="node/worker-1", node=node),
        pb.InventoryItem(key="local_queue/team/main", local_queue=queue),
        pb.InventoryItem(key=f"pending/{GPU}", device_class=pb.Accelerator(pending=5)),
        pb.InventoryItem(key="missing/cohorts", missing="Its role lacks a rule."),
    )
    shown = shell.run("clusters", "get", "west")
    assert shown.returncode == 0
    about, nodes, accelerators, queues = shown.stdout.strip().split("\n\n")
    assert str(made["id"]) in about
    (row,) = table(nodes)
    assert (row["CPU"], row["ACCELERATORS"]) == ("1.5/64", "3/8 H100")
    rows = {one["PRODUCT"]: (one["RUNNING"], one["PENDING"], one["FREE"]) for one in
            table(accelerators)}  # fmt: skip
    assert rows == {"H100": ("3", "0", "5"), "(not on a node yet)": ("0", "5", "0")}
    assert table(queues)[0]["BEHIND IT"] == "team-a"
    assert "Its role lacks a rule." in shown.stderr
    document: Any = shell.object("clusters", "get", str(made["id"]))
    assert document["inventory"]["nodes"][0]["name"] == "worker-1"
    assert document["capacity"]["gpus"] == 8
    (listed,) = [one for one in table(shell.data("clusters", "list")) if one["NAME"] == "west"]
    assert (listed["GPUS"], listed["EXECUTOR"], listed["STATE"]) == ("3/8", "kubernetes", "live")
    shell.data("clusters", "unregister", "west", "--yes")
    assert shell.run("clusters", "get", "west").returncode == 1


def test_quota(shell: Shell) -> None:
    key = shell.object("clusters", "register", "north")["registration_key"]
    shell.data("quota", "flavor", "north", "h100", "--node-label", "gpu=h100",
               "--toleration", "gpu=true:NoSchedule", "--toleration", "spot")  # fmt: skip
    shell.data("quota", "cohort", "north", "all", "--weight", "1.5")
    amount = ("--flavor", "h100", "--resource", GPU)
    shell.data("quota", "set", "north", "team-a", *amount, "--nominal", "8", "--borrowing-limit",
               "4", "--cohort", "all", "--weight", "2", "--reclaim", "Any")  # fmt: skip
    shell.data("quota", "set", "north", "team-a", "--flavor", "h100", "--resource", "cpu",
               "--nominal", "500m")  # fmt: skip
    shell.data("quota", "set", "north", "team-a", *amount, "--borrowing-limit", "none")
    spec = observed(shell.server, str(key))
    (queue,) = spec.quota.cluster_queues
    assert (queue.cohort, queue.fair_weight_millis, queue.reclaim_within_cohort) == (
        "all", 2000, "Any",
    )  # fmt: skip
    quotas = {one.resource: one for one in queue.quotas}
    assert (quotas[GPU].nominal, quotas[GPU].HasField("borrowing_limit")) == (8, False)
    assert quotas["cpu"].nominal == 500
    (flavor,) = spec.quota.flavors
    assert [(one.key, one.operator, one.value, one.effect) for one in flavor.tolerations] == [
        ("gpu", "Equal", "true", "NoSchedule"),
        ("spot", "Exists", "", ""),
    ]
    quotas[GPU].used = 11
    lender = pb.ClusterQueue(name="team-b", cohort="all")
    lender.quotas.add(flavor="h100", resource=GPU, nominal=6)
    queue.pending = 2
    key = shell.object("clusters", "rekey", "north")["registration_key"]
    observed(
        shell.server,
        str(key),
        *(pb.InventoryItem(key=f"q/{one.name}", cluster_queue=one) for one in (queue, lender)),
        quota_error="Somebody else manages h100.",
    )
    shown = shell.run("quota", "show", "north")
    rows = {(one["QUEUE"], one["RESOURCE"]): one for one in table(shown.stdout.strip())}
    names = ("NOMINAL", "USED", "BORROWED", "LENT", "PENDING", "WEIGHT")
    assert [rows["team-a", GPU][name] for name in names] == ["8", "11", "3", "0", "2", "2"]
    assert rows["team-b", GPU]["LENT"] == "3"
    assert rows["team-a", "cpu"]["NOMINAL"] == "0.5"
    assert shown.stderr == "north: Somebody else manages h100.\n"
    assert "team-b" in shell.data("quota", "show")
    shell.data("quota", "delete", "north", "queue/team-a", "cohort/all", "--yes")
    assert "team-a/" in shell.data("quota", "show", "north", "-o", "name"), "it is there yet"
    for wrong in (
        ("set", "north", "team-c", "--nominal", "8"),
        ("set", "north", "team-c", "--flavor", "h100", "--resource", GPU, "--nominal", "1.5"),
        ("set", "north", "team-c", *amount),
        ("delete", "north", "queue/none", "--yes"),
        ("delete", "north", "node/none", "--yes"),
        ("show", "nowhere"),
    ):
        assert shell.run("quota", *wrong).returncode in (1, 2), wrong


def test_a_document_goes_in_and_comes_out(shell: Shell, tmp_path: Path) -> None:
    shell.object("clusters", "register", "south")
    file = tmp_path / "quota.yaml"
    file.write_text(DOCUMENT)
    shell.data("quota", "apply", "south", "-f", str(file))
    shown = shell.data("quota", "show", "south", "-o", "yaml")
    queue = yaml.safe_load(shown)["spec"]["cluster_queues"][0]
    assert [one["nominal"] for one in queue["quotas"]] == [1.5, 64 * 2**30, 8]
    file.write_text(shown)
    again = json.loads(shell.data("quota", "apply", "south", "-f", str(file), "-o", "json"))
    assert again["spec"] == yaml.safe_load(shown)["spec"]
    for wrong in ("a: 1", "- x", "{", "cluster_queues: [{name: x, quotas: [{nominal: 1}]}]",
                  "cluster_queues: [{name: x, nonsense: 1}]"):  # fmt: skip
        file.write_text(wrong)
        done = shell.run("quota", "apply", "south", "-f", str(file))
        assert done.returncode in (1, 2), wrong
        assert done.stderr.count("\n") == 1, done.stderr


def test_assignments(shell: Shell) -> None:
    key = shell.object("clusters", "register", "mid")["registration_key"]
    project = str(shell.object("projects", "create", "Harbor")["id"])
    made = shell.object("clusters", "assign", project, "mid", "--price", "2.5",
                        "--node-selector", "pool=a")  # fmt: skip
    assert (made["price_micros"], made["ready"]) == (2_500_000, False)
    changed = shell.object("clusters", "assign", project, "mid", "--queue", "team-a")
    assert (changed["price_micros"], changed["local_queue"]) == (2_500_000, "team-a")
    assert changed["node_selector"] == {"pool": "a"}
    moved = shell.object("clusters", "assign", project, "mid", "--queue", "team-b")
    assert moved["local_queue"] == "team-b"
    observed(shell.server, str(key))
    (row,) = table(shell.data("clusters", "assignments", "mid"))
    assert (row["PROJECT"], row["QUEUE"], row["STATE"]) == (project, "team-b", "ready")
    secret = shell.data("keys", "create", "m", "--in", project, "--role", "project_member", "-q")
    member = {"WINDLASS_API_KEY": secret}
    own = shell.run("clusters", "assignments", "-o", "json", environment=member)
    assert [one["project_id"] for one in json.loads(own.stdout)] == [project]
    for refused in (
        ("clusters", "assign", project, "mid"),
        ("clusters", "unassign", project, "mid", "--yes"),
        ("clusters", "rekey", "mid"),
        ("quota", "show", "mid"),
    ):
        assert shell.run(*refused, environment=member).returncode == 1, refused
    seen = shell.run("clusters", "get", "mid", "-o", "json", environment=member)
    assert "inventory" not in json.loads(seen.stdout)
    shell.data("clusters", "unassign", project, "mid", "--yes")
    assert table(shell.data("clusters", "assignments", "mid"))[0]["STATE"] == "leaving"
