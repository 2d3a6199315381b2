"""Engines in pods of a real cluster, with the agent in this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.cluster.cluster import TestCluster
from tests.cluster.stages.driven import MIB, Driven, driven
from tests.support.agents.engine_machine import model_store, workload
from tests.support.agents.file_store import Store
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.names import engine_name
from windlass_agent.executors.kubernetes.executor import KubernetesExecutor
from windlass_agent.kube.resources import DEPLOYMENTS, LEADERWORKERSETS, PODS

# Torch takes long to come up where much else runs.
SECONDS = 400.0
ENGINE_BYTES = 1200 * MIB
VLLM_BYTES = 4096 * MIB
# Of one engine with its keeper.
QUOTA = "1500Mi"


def engine_section(document: dict[str, Any], vllm: Path | None = None) -> dict[str, Any]:
    """The settings of engines beside those of jobs: this machine's Python in place of images.

    `vllm` is an interpreter that has it.
    """
    volumes = document["overlay"]["spec"]["volumes"]
    (node,) = document["overlay"]["spec"]["containers"]
    ours = {name: node[name] for name in ("volumeMounts", "env")}
    # vLLM computes for most of a minute before it answers, beside others that answer meanwhile.
    small = {"resources": {"requests": {"cpu": "500m" if vllm else "50m"}}}
    image = {"image": document["image"], "python": document["python"]}
    # Of several that share two cores, none should spin on both.
    threads = [{"name": "OMP_NUM_THREADS", "value": "1"}] if vllm else []
    vllms = {"vllm": image | {"python": str(vllm)}} if vllm else {}
    overlay = {
        "volumes": volumes,
        "containers": [{"name": "engine", **ours, "env": ours["env"] + threads, **small}],
        "initContainers": [{"name": "keeper", **ours}],
    }
    return {
        "images": {"builtin": image, **vllms},
        "keeper": image,
        "memory_bytes": VLLM_BYTES if vllm else ENGINE_BYTES,
        # vLLM's processes speak through 160 MiB of it.
        "shm_bytes": (256 if vllm else 16) * MIB,
        "adapter_bytes": 64 * MIB,
        "drain": 60,
        "overlay": {"spec": overlay},
    }


def from_outside(space: str, host: str) -> dict[str, Any]:
    """Lets this machine in, where the agent runs that would else be a pod of its namespace."""
    selector = {"matchLabels": {"windlass.dev/kind": "engine"}}
    # A pod that hosts others has a door for each.
    ports = [{"port": 8443, "endPort": 8506}]
    rule = {"from": [{"ipBlock": {"cidr": f"{host}/32"}}], "ports": ports}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "agent-outside", "namespace": space},
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": [rule]},
    }


@dataclass
class EngineStage:
    """A world with a model store that its pods reach."""

    world: Driven
    store: Store

    def settings(self, **changes: Any) -> dict[str, Any]:
        """The section of engines."""
        return {"engines": engine_section(self.world.document) | changes}

    def workload(self, identifier: str, *adapters: str, **options: Any) -> pb.Workload:
        made = workload(self.store, *adapters, identifier=identifier, **options)
        made.cluster_id = self.world.enrolled.cluster_id
        made.project_id = "proj_1"
        made.owner = self.world.workload("x").owner
        made.placement.CopyFrom(
            pb.Placement(namespace=self.world.namespace, queue=self.world.queue)
        )
        return made

    async def put(self, identifier: str, *adapters: str, **options: Any) -> None:
        made = self.workload(identifier, *adapters, **options)
        await self.world.plane.internal.PutWorkload(pb.PutWorkloadRequest(workload=made))

    async def serves(self, identifier: str, *loaded: str, generation: int = 1) -> pb.WorkloadStatus:
        """The status once it serves with these adapters and no others."""

        def there() -> pb.WorkloadStatus | None:
            status = self.world.statuses.get(identifier) or pb.WorkloadStatus()
            good = [one.version_id for one in status.adapters if not one.error]
            fits = (status.phase, status.generation) == (pb.PHASE_RUNNING, generation)
            return status if fits and sorted(good) == sorted(loaded) else None

        try:
            return await until(there, SECONDS)
        except AssertionError:
            raise AssertionError(await self.account(identifier)) from None

    async def account(self, identifier: str) -> str:
        """What there is to say of an engine that does not come up."""
        name, space = engine_name(identifier), self.world.namespace
        parts = [str(self.world.statuses.get(identifier))]
        for words in (
            ("get", "pods", "-n", space, "-o", "wide"),
            ("describe", "pods", "-n", space),
            ("logs", f"deployment/{name}", "-n", space, "-c", "keeper", "--tail=40"),
            ("logs", f"deployment/{name}", "-n", space, "-c", "engine", "--tail=40"),
            ("logs", f"pod/{name}-0", "-n", space, "--all-containers", "--tail=40"),
            ("logs", f"pod/{name}-0-1", "-n", space, "--all-containers", "--tail=40"),
        ):
            parts.append(self.world.cluster.kubectl(*words, check=False)[-6000:])
        return "\n".join(parts)

    async def pods(self) -> list[dict[str, Any]]:
        """Pods of engines."""
        return await self.world.kube.list(
            PODS.path(self.world.namespace), label_selector="windlass.dev/kind=engine"
        )

    async def gone(self) -> None:
        """Until nothing of any engine is left."""

        async def left() -> list[Any]:
            roots = [
                one
                for kind in (DEPLOYMENTS, LEADERWORKERSETS)
                for one in await self.world.kube.list(kind.path(self.world.namespace))
            ]
            return [*roots, *await self.pods()]

        await until(left, SECONDS, holds=lambda found: not found, every=0.2)

    @property
    def executor(self) -> KubernetesExecutor:
        """The executor of the agent that runs."""
        assert self.world.executor
        return self.world.executor

    def client(self, identifier: str) -> tuple[httpx.AsyncClient, dict[str, str]]:
        """A client of an engine's door, as the tunnel comes there, and its extensions."""
        doors = self.executor.doors
        door = doors.find(identifier)
        assert door, f"{identifier} does not serve"
        host, port, name = door
        client = httpx.AsyncClient(
            base_url=f"https://{host}:{port}", verify=doors.tls, timeout=SECONDS, trust_env=False
        )
        return client, {"sni_hostname": name}

    async def say(self, identifier: str, model: str, **fields: Any) -> httpx.Response:
        body = {"model": model, "prompt": "the quick", "max_tokens": 8, "temperature": 0} | fields
        client, named = self.client(identifier)
        async with client:
            return await client.post("/v1/completions", json=body, extensions=named)


@asynccontextmanager
async def engine_stage(
    cluster: TestCluster, url: str, folder: Path, **queue: Any
) -> AsyncIterator[EngineStage]:
    """A stage without an agent yet."""
    wishes = {"memory": QUOTA} | queue
    async with driven(cluster, url, folder, stage=False, **wishes) as world:
        with model_store(folder / "store", host=cluster.host) as store:
            yield EngineStage(world, store)
