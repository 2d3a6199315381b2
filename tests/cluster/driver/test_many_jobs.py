"""Two hundred jobs on two real clusters whose agents die at random: none lost, none doubled.

Platform, agents, Kueue, quota and Jobs are real, and so is all that runners say. The pods run on
nodes that only seem to run them, and their runners only claim to train (`players`): two hundred
trainings would cost more than all that is tested here.
"""

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.cluster import FAKE, TestCluster
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.agents import Agent, joined
from tests.cluster.stages.players import Players
from tests.cluster.stages.rehearsal import rehearsing
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.factories.feather import make_feather
from tests.support.processes.windlass import Windlass, free_port, make_single, running
from tests.support.waiting import until, wait_until

from windlass.client import Windlass as Client
from windlass.kubernetes.labels import ATTEMPT, JOB
from windlass_agent.kube import Kube
from windlass_agent.kube.resources import JOBS as KUBE_JOBS
from windlass_agent.kube.resources import PODS

# It breaks nothing, but two agents that always start leave others no processor.
pytestmark = [pytest.mark.alone, pytest.mark.faults, pytest.mark.timeout(900)]
JOBS, AT_ONCE = 200, 20
# Of an agent that has taken over what there is.
LIFE_SECONDS = (0.0, 4.0)
QUEUE = "many"
MIB = 2**20
CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@dataclass
class Site:
    """A platform whose one project may use both clusters."""

    windlass: Windlass
    folder: Path
    clusters: dict[str, TestCluster]
    agents: list[Agent] = field(default_factory=list)
    namespace: str = ""


@pytest.fixture
def site(clusters: Clusters) -> Iterator[Site]:
    with reachable_folder() as folder, ExitStack() as stack:
        found = {name: stack.enter_context(clusters.open(name)) for name in ("east", "west")}
        address = f"127.0.0.1:{free_port()}"
        settings = {"agent": {"enabled": False}, "grpc": {"listen": address}}
        windlass = make_single(folder / "data", settings)
        stack.callback(remove_database, windlass.data)
        made = Site(stack.enter_context(running(windlass)), folder, found)
        http = stack.enter_context(windlass.http())
        for cluster in found.values():
            nodes = stack.enter_context(rehearsing(cluster, folder, 2))
            agent = joined(
                http, cluster, folder / cluster.name,
                address=f"grpc://{address}", settings=partial(described, cluster, nodes),
            )  # fmt: skip
            made.agents.append(stack.enter_context(agent))
            made.namespace = assigned(http, made.agents[-1].cluster_id, cluster)
        yield made


def described(cluster: TestCluster, nodes: dict[str, str], home: str, port: int) -> dict[str, Any]:
    return {
        "image": cluster.image,
        "agent_namespace": home,
        "agent_address": f"{cluster.host}:{port}",
        "sizes": {"cpus": 0.1, "memory_bytes": 64 * MIB, "workdir_bytes": MIB, "tmp_bytes": MIB},
        "overlay": {"spec": {"nodeSelector": nodes, "tolerations": [FAKE]}},
    }


def assigned(http: httpx.Client, cluster_id: str, cluster: TestCluster) -> str:
    """The namespace of the owner's project, with quota for some of its jobs at once."""
    amounts = {"cpu": AT_ONCE, "memory": AT_ONCE * 64 * MIB}
    quotas = [
        {"flavor": QUEUE, "resource": name, "nominal": amount} for name, amount in amounts.items()
    ]
    document = {"flavors": [{"name": QUEUE}], "cluster_queues": [{"name": QUEUE, "quotas": quotas}]}
    http.patch(f"/v1/clusters/{cluster_id}/quota", json=document).raise_for_status()
    cluster.remove_after("clusterqueue", QUEUE)
    cluster.remove_after("resourceflavor", QUEUE)
    project = http.get("/v1/me").json()["principal"]["project_id"]
    path = f"/v1/clusters/{cluster_id}/assignments"
    place = http.put(f"{path}/{project}", json={"cluster_queue": QUEUE, "priority_class": ""})
    namespace: str = place.raise_for_status().json()["namespace"]
    cluster.remove_after("namespace", namespace)
    wait_until(lambda: http.get(path).json()["data"][0]["ready"], f"ready in {cluster.name}")
    return namespace


@dataclass
class Ledger:
    """Record of what both clusters showed of each attempt."""

    mains: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    pods: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    # Pods that have not ended, by job.
    alive: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    doubled: list[str] = field(default_factory=list)

    def see(self, kind: str, item: dict[str, Any]) -> None:
        """Takes an event of a watch on Jobs or pods."""
        metadata = item["metadata"]
        labels, uid = metadata["labels"], metadata["uid"]
        job, attempt = labels[JOB], labels[ATTEMPT]
        if "template" in item["spec"]:
            self.mains[job, attempt].add(uid)
            return
        self.pods[job, attempt].add(uid)
        ended = kind == "DELETED" or item["status"].get("phase") in ("Succeeded", "Failed")
        (self.alive[job].discard if ended else self.alive[job].add)(uid)
        if len(self.alive[job]) > 1:
            self.doubled.append(f"{job} had two pods at once, one of attempt {attempt}")

    @property
    def repeated(self) -> list[tuple[str, str]]:
        """Attempts that were made more than once."""
        return [key for of in (self.mains, self.pods) for key, uids in of.items() if len(uids) > 1]


async def test_none_is_lost_and_none_is_doubled(site: Site) -> None:
    began = time.monotonic()
    headers = {"Authorization": f"Bearer {site.windlass.owner_key}"}
    async with (
        watched(site) as ledger,
        httpx.AsyncClient(base_url=site.windlass.url, headers=headers, timeout=60) as http,
    ):
        body = await asyncio.to_thread(job_body, site.windlass)
        kills: list[str] = []
        killing = [asyncio.create_task(kill(agent, kills)) for agent in site.agents]
        try:
            created = await create(http, body)
            ended = await until_ended(http)
        finally:
            for task in killing:
                task.cancel()
            await asyncio.gather(*killing, return_exceptions=True)
        print(f"{len(kills)} kills, {JOBS} jobs ended after {time.monotonic() - began:.0f} s")
        await asyncio.to_thread(
            wait_until, lambda: not left(site), "nothing is left in the clusters"
        )
        assert len(kills) > 5, "too few died to tell anything"
        assert {job["id"] for job in ended} == created
        for job in ended:
            assert job["status"] == "succeeded", job
            await judge(http, job)
    assert not ledger.doubled
    assert not ledger.repeated
    assert {job for job, _ in ledger.mains} == created
    shares = Counter(job["windlass"]["cluster"] for job in ended)
    assert min(shares.values()) > JOBS / 10, shares


def job_body(windlass: Windlass) -> dict[str, Any]:
    """Of a job on a model that is never loaded."""
    base = make_feather(windlass.data.parent / "feather")
    rows = (json.dumps(CHAT) + "\n").encode() * 12
    with Client(windlass.url, windlass.owner_key) as client:
        client.models.import_folder("feather", base)
        file = client.openai.files.create(file=("train.jsonl", rows), purpose="fine-tune")
    return {"model": "feather", "training_file": file.id}


@asynccontextmanager
async def watched(site: Site) -> AsyncIterator[Ledger]:
    """Follows Jobs and pods of the project in both clusters."""
    ledger = Ledger()
    async with AsyncExitStack() as stack:
        following = []
        for cluster, agent in zip(site.clusters.values(), site.agents, strict=True):
            kube = await stack.enter_async_context(await Kube.connect(cluster.kubeconfig))
            players = Players(kube, site.folder, f"{cluster.host}:{agent.port}")
            stack.push_async_callback(players.close)
            for resource in (KUBE_JOBS, PODS):
                path = resource.path(site.namespace)
                version = [page.resource_version async for page in kube.pages(path)][-1]
                following.append(asyncio.create_task(follow(kube, path, version, ledger, players)))
        try:
            yield ledger
            assert not any(task.done() for task in following), "a watch was lost"
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)


async def follow(kube: Kube, path: str, version: str, ledger: Ledger, players: Players) -> None:
    """Every change since a version: a watch that ends is gone on with."""
    while True:
        async with aclosing(kube.watch(path, resource_version=version)) as events:
            async for kind, item in events:
                version = item["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    ledger.see(kind, item)
                    if kind != "DELETED" and "template" not in item["spec"]:
                        players.see(item)


async def kill(agent: Agent, kills: list[str]) -> None:
    """Kills an agent again and again until cancelled, each time soon after it is at work."""
    while True:
        await asyncio.sleep(random.uniform(*LIFE_SECONDS))
        agent.kill()
        kills.append(agent.cluster_id)
        agent.start()
        await until(agent.listens, every=0.1)


async def create(http: httpx.AsyncClient, body: dict[str, Any]) -> set[str]:
    limit = asyncio.Semaphore(8)

    async def one() -> str:
        async with limit:
            answer = await http.post("/v1/fine_tuning/jobs", json=body)
        return str(answer.raise_for_status().json()["id"])

    return set(await asyncio.gather(*(one() for _ in range(JOBS))))


async def until_ended(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Returns all jobs once each has ended."""

    async def going_on() -> Counter[tuple[str, str]]:
        return Counter(
            (job["status"], job["windlass"]["queue"]["reason"])
            for job in await listed(http)
            if job["status"] not in ("succeeded", "failed", "cancelled")
        )

    await until(going_on, 600, holds=lambda states: not states, every=1)
    return await listed(http)


async def listed(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        after = {"after": found[-1]["id"]} if found else {}
        answer = await http.get("/v1/fine_tuning/jobs", params={"limit": 100, **after})
        page = answer.raise_for_status().json()
        found += page["data"]
        if not page["has_more"]:
            return found


async def judge(http: httpx.AsyncClient, job: dict[str, Any]) -> None:
    """It succeeded once, with one checkpoint and a model that there is."""
    path = f"/v1/fine_tuning/jobs/{job['id']}"
    answer = await http.get(f"{path}/events", params={"limit": 100})
    said = [event["message"] for event in answer.raise_for_status().json()["data"]]
    assert sum("successfully completed" in message for message in said) == 1, said
    assert sum(message.startswith("Step 1/1") for message in said) == 1, said
    kept = (await http.get(f"{path}/checkpoints")).raise_for_status().json()["data"]
    assert [one["step_number"] for one in kept] == [1]
    (await http.get(f"/v1/models/{job['fine_tuned_model']}")).raise_for_status()


def left(site: Site) -> list[str]:
    """The objects of any job that are left in the clusters."""
    return [
        name
        for cluster in site.clusters.values()
        for name in cluster.kubectl("get", "jobs,pods", "-n", site.namespace, "-o", "name").split()
    ]
