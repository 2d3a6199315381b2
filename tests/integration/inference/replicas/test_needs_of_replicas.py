"""What replicas need, from a serving to an agent, and what no node of its cluster can give."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.inference.test_inference import serving
from tests.integration.models.test_models import FILES
from tests.support.services.platform import Platform
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.errors import from_rpc

GIB = 2**30
SHAPE = {
    "num_hidden_layers": 32, "num_attention_heads": 8, "num_key_value_heads": 8,
    "hidden_size": 512, "max_position_embeddings": 131_072,
}  # fmt: skip
AWQ = {"quantization_config": {"quant_method": "awq", "bits": 4}}
NODE = clusters_pb2.NodeShape(
    resource="nvidia.com/gpu", product="NVIDIA-L4", devices=2, device_memory_bytes=GIB,
    memory_bytes=64 * GIB, nodes=1, flavors=["spot"],
)  # fmt: skip


def config(**fields: Any) -> dict[str, bytes]:
    return {**FILES, "config.json": json.dumps({"model_type": "llama", **fields}).encode()}


async def put(platform: Platform, model: str, **fields: Any) -> pb.Serving:
    request = pb.PutServingRequest(model=model, min_replicas=1, engine="vllm", **fields)
    made: pb.Serving = await platform.inference.PutServing(request, **platform.tenant())
    return made


async def said(platform: Platform, model: str) -> str:
    request = pb.GetServingRequest(model=model)
    found = await platform.inference.GetServing(request, **platform.tenant())
    return str(found.message)


async def test_needs_reach_the_agent_and_what_no_node_has_is_said(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path) as (platform, _):
        tenant = platform.tenant()
        plain = await platform.import_model("plain", FILES, **tenant)
        assert not plain.HasField("quantization")
        packed = await platform.import_model("packed", config(**AWQ), **tenant)
        assert (packed.quantization.method, packed.quantization.bits) == ("awq", 4)
        with pytest.raises(grpc.aio.AioRpcError, match="'builtin' cannot read") as caught:
            await platform.inference.PutServing(pb.PutServingRequest(model="packed"), **tenant)
        assert from_rpc(caught.value).param == "engine"

        capacity = clusters_pb2.Capacity(
            gpus=2, each_engine=clusters_pb2.EngineShare(gpus=1), node_shapes=[NODE]
        )
        agent = await platform.live_cluster(engines=("vllm",), capacity=capacity)
        shown = await put(platform, "packed", accelerator="spot", memory_bytes=GIB, priority="high")
        assert (shown.accelerator, shown.memory_bytes, shown.priority) == ("spot", GIB, "high")
        engine = (await agent.next_engine("packed")).engine
        assert (engine.accelerator, engine.memory_bytes, engine.priority) == ("spot", GIB, "high")
        assert engine.gpus == 1

        # One request of so many tokens takes more than both of a node's devices.
        await platform.import_model("large", config(**SHAPE), **tenant)
        arguments = clusters_pb2.EngineArguments(context_length=131_072)
        await put(platform, "large", arguments=arguments)
        await put(platform, "plain", accelerator="NVIDIA-H100")
        said_of = {
            "large": "the keys and values of 131072 tokens 8.0 GiB and the engine at least 0.5 "
            "GiB; an engine would have 2.0 GiB of GPU memory in the largest live cluster.",
            "plain": "No live cluster has the accelerator 'NVIDIA-H100'.",
        }
        for model, words in said_of.items():

            async def is_said(model: str = model, words: str = words) -> bool:
                return words in await said(platform, model)

            await until(is_said, seconds=60)
        assert not agent.engines("large") + agent.engines("plain")
