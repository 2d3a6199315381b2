"""Capacity of a cluster as its agent reports it, before anything of it was seen."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.kube import Kube
from windlass_agent.kube.access import Access


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
