"""Capacity of a cluster as its agent reports it, before anything of it was seen."""

from collections.abc import Callable
from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.nodes import trim_node
from windlass_agent.kube import Informer, Kube
from windlass_agent.kube.access import Access
from windlass_agent.kube.errors import ResourceNotFound
from windlass_agent.kube.resources import Resource


async def nobody() -> str:
    return ""


async def test_what_its_image_trains_with_is_as_the_operator_says() -> None:
    async with Kube(Access("http://127.0.0.1:1", None, nobody)) as kube:
        informers = ClusterInformers(kube)
        ours = ClusterCapacity(informers, ClusterSettings(), lambda: None).capacity(0)
        assert ours.backends == ["trl"]
        assert ours.libraries == ["bitsandbytes"]
        settings = ClusterSettings.model_validate({"libraries": ["deepspeed"]})
        theirs = ClusterCapacity(informers, settings, lambda: None).capacity(0)
        assert theirs.libraries == ["deepspeed"]


async def test_it_says_what_engines_find_there() -> None:
    engines = {
        "images": {"vllm": {"image": "vllm:1"}}, "gpus": 2, "priority_classes": {"low": "batch"},
    }  # fmt: skip
    settings = ClusterSettings.model_validate({"engines": engines})
    async with Kube(Access("http://127.0.0.1:1", None, nobody)) as kube:
        found = ClusterCapacity(ClusterInformers(kube), settings, lambda: None)
        told = found.capacity(0)
        assert (told.each_engine.gpus, list(told.engine_priorities)) == (2, ["low"])
        assert not told.node_shapes
        assert found.choice("") is found.choice("H100") is None
        assert found.choice("nvidia.com/gpu") is not None


async def test_it_says_what_an_engine_takes_that_asks_for_nothing() -> None:
    async with Kube(Access("http://127.0.0.1:1", None, nobody)) as kube:
        informers = ClusterInformers(kube)
        trains = ClusterCapacity(informers, ClusterSettings(), lambda: None).capacity(0)
        assert not trains.HasField("each_engine")
        engines = {"images": {"vllm": {"image": "vllm"}}, "cpus": 0.5, "gpus": 2}
        settings = ClusterSettings.model_validate({"engines": engines})
        serves = ClusterCapacity(informers, settings, lambda: None).capacity(0)
        assert serves.each_engine == pb.EngineShare(gpus=2, cpu_millis=500)


@pytest.mark.parametrize(
    "device", [{"resource": "nvidia.com/gpu"}, {"device_class": "gpu.example.com"}]
)
async def test_trainers_may_share_devices_of_either_kind(device: dict[str, str]) -> None:
    given: dict[str, Any] = {"accelerators": [device]}
    trains = {"engines": {"trainers": {"image": "runner:1"}}}
    async with Kube(Access("http://127.0.0.1:1", None, nobody)) as kube:
        informers = ClusterInformers(kube)
        for asked, shares in ((given | trains, True), (given, False)):
            settings = ClusterSettings.model_validate(asked)
            found = ClusterCapacity(informers, settings, lambda: None).capacity(0)
            assert found.shares_claims is shares
        nothing = ClusterSettings.model_validate(trains | {"accelerators": []})
        assert not ClusterCapacity(informers, nothing, lambda: None).capacity(0).shares_claims


KINDS = {
    "nodes", "local_queues", "cluster_queues", "flavors", "device_classes", "slices",
}  # fmt: skip


@pytest.mark.parametrize("last", sorted(KINDS))
@pytest.mark.parametrize("refused", [True, False])
async def test_it_waits_for_each_kind_that_shapes_are_made_of(last: str, refused: bool) -> None:
    async with Kube(Access("http://127.0.0.1:1", None, nobody)) as kube:
        informers = ClusterInformers(kube)
        found = ClusterCapacity(informers, ClusterSettings(), lambda: None)
        for name in KINDS - {last}:
            getattr(informers, name).synced.set()
        assert not found.settled
        awaited: Informer[Any] = getattr(informers, last)
        if refused:
            awaited.refused = ResourceNotFound(404, "NotFound", "the cluster does not serve it")
        else:
            awaited.synced.set()
        assert found.settled


class Heard(ClusterInformers):
    """Informers that tell who listens to which kinds."""

    def __init__(self, kube: Kube):
        super().__init__(kube)
        self.heard: dict[Callable[[], None], set[str]] = {}

    def listen(self, changed: Callable[[], None], *resources: Resource) -> None:
        self.heard[changed] = {one.plural for one in resources}


async def test_who_waits_is_woken_by_each_of_these_kinds() -> None:
    def looked() -> None:
        raise NotImplementedError

    async with Kube(Access("http://127.0.0.1:1", None, nobody)) as kube:
        informers = Heard(kube)
        ClusterCapacity(informers, ClusterSettings(), looked)
        assert informers.heard[looked] == {
            "nodes", "localqueues", "clusterqueues", "resourceflavors", "deviceclasses",
            "resourceslices",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("flag", "memory"),
    [("--seed=7", 23_034 * 2**20), ("--quantization=fp8", 0), ("--cpu-offload-gb=8", 0)],
)
async def test_memory_is_not_told_where_the_operator_has_weights_take_less(
    flag: str, memory: int
) -> None:
    labels = {"nvidia.com/gpu.product": "L4", "nvidia.com/gpu.memory": "23034"}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": {"memory": "64Gi", "nvidia.com/gpu": "1"}, "conditions": ready}
    engines = {"images": {"vllm": {"image": "vllm:1", "flags": [flag]}}}
    settings = ClusterSettings.model_validate(
        {"engines": engines, "accelerators": [{"resource": "nvidia.com/gpu"}]}
    )
    async with Kube(Access("http://127.0.0.1:1", None, nobody)) as kube:
        informers = ClusterInformers(kube)
        nodes = {"n": trim_node({"metadata": {"labels": labels}, "status": status})}
        informers.nodes.items = nodes
        (shape,) = ClusterCapacity(informers, settings, lambda: None).capacity(0).node_shapes
        assert (shape.product, shape.devices) == ("L4", 1)
        assert (shape.device_memory_bytes, shape.memory_bytes) == (memory, 64 * 2**30)
