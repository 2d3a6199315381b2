"""An engine in a pod whose log says that memory ran out: told in numbers, nothing of the log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web
from tests.support.fakes.kube_api import kube_api, refused
from tests.support.waiting import until
from tests.unit.agent.kubernetes.test_tracked_engine import (
    LOADS,
    PATIENCE,
    POD,
    shown,
    workload,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass_agent.executors.kubernetes.engines.driver import EnginePodDriver
from windlass_agent.executors.kubernetes.engines.hosts import Hosts
from windlass_agent.executors.kubernetes.engines.memory_lack import READ_BYTES, MemoryLack
from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot
from windlass_agent.executors.kubernetes.engines.residents import Residents
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.snapshot import Container
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.nodes import trim_node
from windlass_agent.kube import Kube

CACHE = "ValueError: No available memory for the cache blocks. Try increasing memory."
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
SECRET = "somebody's secret prompt"
END = Container(state="terminated", reason="Error", exit_code=1)
ENDED = replace(POD, restarts=1, last_end=END)
LOWER = "Lower context_length or max_concurrency, or give it more GPUs."
GPUS = "nvidia.com/gpu"


def engine(**changes: Any) -> pb.EngineWorkload:
    files = [models_pb2.FileUrl(path="model.safetensors", bytes=15 * 2**30)]
    spec: dict[str, Any] = {"model_version_id": "mv-1", "model_files": files, "gpus": 1}
    return workload(**spec | changes).engine


def node(*memories: str) -> Any:
    """A node with a kind of GPUs for each of these memories in MiB; empty for an unknown one."""
    kinds = [GPUS, "nvidia.com/mig-1g.10gb"][: len(memories)]
    labels = {f"{kind}.memory": size for kind, size in zip(kinds, memories, strict=True) if size}
    status = {"allocatable": dict.fromkeys(kinds, "8")}
    return trim_node({"metadata": {"labels": labels}, "status": status})


class Pods:
    """The logs of pods, and what was asked of them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        assert request.path == "/api/v1/namespaces/team-a/pods/p-1/log"
        self.asked.append(dict(request.query))
        if not self.text:
            return refused(400, "BadRequest", "previous terminated container not found")
        return web.Response(text=self.text)


@asynccontextmanager
async def reading(pods: Pods, *memories: str) -> AsyncIterator[MemoryLack]:
    async with kube_api(pods.handle) as kube:
        yield lack_of(kube, *memories)


def lack_of(kube: Kube, *memories: str) -> MemoryLack:
    informers, settings = ClusterInformers(kube), ClusterSettings()
    if memories:
        informers.nodes._items["n"] = node(*memories)
    capacity = ClusterCapacity(informers, settings, lambda: None)
    return MemoryLack(kube, settings.engines, capacity)


@pytest.mark.parametrize("said", [CACHE, CUDA])
@pytest.mark.parametrize(
    ("spec", "memories", "had"),
    [
        ({}, ["24576"], "24 GiB on its GPUs"),
        ({"gpus": 2, "nodes": 2}, ["24576"], "4 GPUs of 24 GiB each"),
        ({}, [""], "1 GPU"),
        ({"gpus": 2}, ["24576", "10240"], "2 GPUs"),
        ({"gpus": 2}, [], "2 GPUs"),
    ],
)
async def test_it_says_what_the_engine_had_and_what_to_lower(
    said: str, spec: dict[str, int], memories: list[str], had: str
) -> None:
    pods = Pods(f"{SECRET}\n{said}\n")
    async with reading(pods, *memories) as lack:
        found = await lack.advice(engine(**spec), ENDED)
    assert found == f"It had {had} for weights of 15 GiB. {LOWER}"
    assert pods.asked == [{"container": "engine", "tailLines": "200", "previous": "true"}]


async def test_an_engine_without_gpus_has_its_pods_memory() -> None:
    async with reading(Pods("MemoryError")) as lack:
        found = await lack.advice(engine(gpus=0), ENDED)
    assert found.startswith("It had 2 GiB of its machine's memory for weights of 15 GiB. Lower ")
    assert found.endswith("or have the operator raise engines.memory_bytes.")


@pytest.mark.parametrize("text", ["", f"{SECRET}\nKeyError: 'x'\n", f"{CUDA}\n{'x' * READ_BYTES}"])
async def test_it_says_nothing_where_the_end_of_the_log_does_not(text: str) -> None:
    async with reading(Pods(text)) as lack:
        assert not await lack.advice(engine(), ENDED)


async def test_of_a_pod_that_is_not_started_anew_the_log_is_the_last_one() -> None:
    pods = Pods(CUDA)
    async with reading(pods) as lack:
        assert await lack.advice(engine(), replace(POD, runner=END))
    assert "previous" not in pods.asked[0]


class Shown:
    """The informers and keepers of a driver that is told what they show."""

    def __init__(self) -> None:
        self.pod = POD

    def snapshots(self, positions: object) -> dict[str, EngineSnapshot]:
        return {"eng-1": shown(made(), self.pod)}

    def state(self, uid: str) -> Any:
        return LOADS

    def order(self) -> None:
        """Nobody needs it."""


def made() -> pb.Workload:
    wanted = workload()
    wanted.engine.CopyFrom(engine())
    return wanted


async def test_a_replica_that_fails_for_it_says_so_and_nothing_of_its_log() -> None:
    pods, shows = Pods(f"{SECRET}\n{CACHE}\n"), Shown()
    cluster, launcher = cast("Any", shows), cast("Any", Deletes())
    async with kube_api(pods.handle) as kube:
        driver = EnginePodDriver(
            cluster_id="c-1", launcher=launcher, memory=lack_of(kube, "24576"),
            informers=cluster, keepers=cluster, residents=Residents(Hosts(lambda: None, print)),
            positions=dict, patience=PATIENCE, gpus=None, looked=asyncio.Event(),
            changed=lambda: None,
        )  # fmt: skip
        await driver.apply(made())
        driver._look()
        shows.pod = ENDED
        driver._look()
        await until(lambda: driver._engines["eng-1"].lack)
        shows.pod = replace(ENDED, restarts=2)
        driver._look()
        (status,) = driver.statuses()
        await driver.close()
    assert (status.phase, status.reason) == (pb.PHASE_FAILED, "OutOfMemory")
    assert status.message == (
        "The engine ended with code 1: it found too little memory. "
        f"It had 24 GiB on its GPUs for weights of 15 GiB. {LOWER}"
    )


class Deletes:
    """A launcher whose deletes do nothing."""

    async def delete(self, *_: object) -> None:
        """Nothing is there."""
