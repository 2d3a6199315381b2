"""From a job's creation through HTTP to the Workload that Kueue makes of it, at 20 a second.

The platform, an agent with the rights of its chart and a cluster with Kueue, all on this machine.
The queue has room for no job, so that nothing but launching goes on. The floor are POSTs of the
very same Jobs to the API server, at the same rate, once platform and agent are gone. Beforehand
the same at 5 a second (`calm`): on few cores 20 are more than all those programs together can do,
and what waits for a processor says little of the way itself. Both clocks
start before the request and end when a watch shows the Workload. Needs root and the programs of
`make cluster`.
"""

import asyncio
import copy
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import httpx
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import paced, percentile
from tests.bench.plant import NO_AGENT, Plant, single
from tests.cluster.cluster import TestCluster
from tests.cluster.fixtures import ours, unavailable
from tests.cluster.provision import lease
from tests.cluster.stages.agents import joined
from tests.support.processes.windlass import free_port
from tests.support.waiting import until, wait_until

from windlass.kubernetes.names import object_name
from windlass_agent.kube import Kube
from windlass_agent.kube.resources import JOBS, WORKLOADS

RATE, CALM, WARM_UP = 20, 5, 10
PATH = "/v1/fine_tuning/jobs"
QUEUE = "launch"
FLOOR = "POST of the same Job to the API server"
# When Workloads were seen, by the name of their Job.
Times = dict[str, float]


async def measure(options: Options) -> list[Figure]:
    """Milliseconds through Windlass, beside the floor's."""
    if reason := unavailable():
        raise RuntimeError(reason)
    count = RATE * (5 if options.quick else 30)
    with ExitStack() as made:
        cluster = ours(made.enter_context(lease.use("bench")), made)
        async with await Kube.connect(cluster.kubeconfig) as kube:
            found, job = await _through_windlass(cluster, kube, count)
            floor = await _straight(cluster, kube, job, count)
    goals = [
        at_most(f"launch_p{percent}", percentile(found.busy, percent / 100), "ms", bound).beside(
            FLOOR, percentile(floor.busy, percent / 100)
        )
        for percent, bound in ((50, 200), (99, 1000))
    ]
    calm = [
        plain(f"launch_calm_p{percent}", percentile(found.calm, percent / 100), "ms").beside(
            FLOOR, percentile(floor.calm, percent / 100)
        )
        for percent in (50, 99)
    ]
    return goals + calm


@dataclass(frozen=True)
class Launched:
    """Milliseconds of each job, at either rate."""

    calm: list[float]
    busy: list[float]


async def _through_windlass(
    cluster: TestCluster, kube: Kube, count: int
) -> tuple[Launched, dict[str, Any]]:
    """The milliseconds, and one of the Jobs."""
    address = f"127.0.0.1:{free_port()}"
    with single({**NO_AGENT, "grpc": {"listen": address}}) as plant, plant.windlass.http() as http:
        agent = joined(
            http, cluster, plant.folder / "agent",
            address=f"grpc://{address}", settings=partial(_settings, cluster),
        )  # fmt: skip
        with agent as joined_agent:
            namespace = _assigned(http, joined_agent.cluster_id, cluster)
            async with _workloads(kube, namespace) as seen, _session(plant) as session:
                post = partial(_create, session, plant.job_body())
                found = await _launch(post, seen, count)
        return found, (await kube.list(JOBS.path(namespace)))[0]


def _settings(cluster: TestCluster, home: str, port: int) -> dict[str, Any]:
    address = f"{cluster.host}:{port}"
    return {"image": cluster.image, "agent_namespace": home, "agent_address": address}


def _assigned(http: httpx.Client, cluster_id: str, cluster: TestCluster) -> str:
    """The namespace of the owner's project, with a queue in which every job waits."""
    amounts = [{"flavor": QUEUE, "resource": name, "nominal": 1} for name in ("cpu", "memory")]
    quota = {"flavors": [{"name": QUEUE}], "cluster_queues": [{"name": QUEUE, "quotas": amounts}]}
    http.patch(f"/v1/clusters/{cluster_id}/quota", json=quota).raise_for_status()
    project = http.get("/v1/me").json()["principal"]["project_id"]
    path = f"/v1/clusters/{cluster_id}/assignments"
    place = http.put(f"{path}/{project}", json={"cluster_queue": QUEUE, "priority_class": ""})
    namespace: str = place.raise_for_status().json()["namespace"]
    wait_until(lambda: http.get(path).json()["data"][0]["ready"], "the project is ready")
    active = ("wait", "--for=condition=Active", "localqueue", "--all", "-n", namespace)
    cluster.kubectl(*active, "--timeout=60s")
    return namespace


def _session(plant: Plant) -> aiohttp.ClientSession:
    headers = {
        "authorization": f"Bearer {plant.windlass.owner_key}",
        "content-type": "application/json",
    }
    return aiohttp.ClientSession(plant.windlass.url, headers=headers, raise_for_status=True)


async def _create(session: aiohttp.ClientSession, body: bytes) -> str:
    async with session.post(PATH, data=body) as answer:
        return object_name((await answer.json())["id"], 1)


async def _straight(cluster: TestCluster, kube: Kube, job: dict[str, Any], count: int) -> Launched:
    """Milliseconds of Jobs that are like one of Windlass', in another namespace."""
    namespace = cluster.namespace("floor")
    queue = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    cluster.queues(namespace, name=queue, cpu="1", memory="1")
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    name = job["spec"]["template"]["spec"]["serviceAccountName"]
    cluster.apply(account | {"metadata": {"name": name, "namespace": namespace}})
    numbers = itertools.count()

    async def post() -> str:
        made = _like(job, f"{job['metadata']['name']}-{next(numbers)}", namespace)
        await kube.create(JOBS.path(namespace), made)
        return str(made["metadata"]["name"])

    async with _workloads(kube, namespace) as seen:
        return await _launch(post, seen, count)


def _like(job: dict[str, Any], name: str, namespace: str) -> dict[str, Any]:
    """A new Job, without what the cluster itself wrote into the other."""
    made = {"apiVersion": "batch/v1", "kind": "Job", "spec": copy.deepcopy(job["spec"])}
    kept = {key: job["metadata"][key] for key in ("labels", "annotations")}
    made["metadata"] = {"name": name, "namespace": namespace, **kept}
    del made["spec"]["selector"]
    labels = made["spec"]["template"]["metadata"]["labels"]
    for key in [key for key in labels if key.endswith(("controller-uid", "job-name"))]:
        del labels[key]
    return made


@asynccontextmanager
async def _workloads(kube: Kube, namespace: str) -> AsyncIterator[Times]:
    """Yields when each Workload of a namespace is first shown, while the block lasts."""
    seen: Times = {}
    path = WORKLOADS.path(namespace)
    async for page in kube.pages(path):
        version = page.resource_version

    async def watch() -> None:
        async for _, workload in kube.watch(path, resource_version=version):
            for owner in workload["metadata"].get("ownerReferences") or ():
                seen.setdefault(owner["name"], time.perf_counter())

    watching = asyncio.create_task(watch())
    try:
        yield seen
        assert not watching.done(), "the watch was cut"
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _launch(post: Callable[[], Awaitable[str]], seen: Times, count: int) -> Launched:
    """Each post answers its Job's name; its time ends when the Workload is shown."""
    posted: Times = {}

    async def one() -> None:
        began = time.perf_counter()
        posted[await post()] = began

    async def at(rate: int) -> list[float]:
        posted.clear()
        await paced(one, count=count * rate // RATE, rate=rate)
        await until(lambda: posted.keys() <= seen.keys(), 120)
        return [1000 * (seen[name] - began) for name, began in posted.items()]

    for _ in range(WARM_UP):
        await one()
        await until(lambda: posted.keys() <= seen.keys(), 120)
    return Launched(calm=await at(CALM), busy=await at(RATE))
