"""Requests to set how a model is served that cannot be, each refused by its field."""

from dataclasses import replace
from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core.errors import InvalidArgument
from windlass.engine_arguments import EngineArguments, divided
from windlass.inference.domain import InferencePolicy, Serving
from windlass.inference.servings.checks import (
    arguments_of,
    complete,
    require_bounds,
    require_experts,
    require_group,
    require_needs,
    require_sleep,
    schedule_of,
)

WINDOW: dict[str, Any] = {"start": "0 8 * * *", "end": "0 9 * * *", "replicas": 1}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"min_replicas": -1}, "min_replicas"),
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas"),
        ({"max_replicas": 65}, "max_replicas"),
        ({"target_requests": -1}, "target_requests"),
        ({"target_requests": 10_001}, "target_requests"),
        ({"target_cache": -1}, "target_cache"),
        ({"target_cache": 101}, "target_cache"),
        ({"target_gpu": -1}, "target_gpu"),
        ({"target_gpu": 101}, "target_gpu"),
        ({"target_wait_seconds": -1}, "target_wait_seconds"),
        ({"target_wait_seconds": 601}, "target_wait_seconds"),
        ({"idle_seconds": -1}, "idle_seconds"),
        ({"idle_seconds": 59}, "idle_seconds"),
        ({"idle_seconds": 30 * 86_400 + 1}, "idle_seconds"),
        ({"sleep_seconds": -1}, "sleep_seconds"),
        ({"sleep_seconds": 29}, "sleep_seconds"),
        ({"sleep_seconds": 30 * 86_400 + 1}, "sleep_seconds"),
        ({"clusters": {"east": 0}}, "clusters"),
        ({"clusters": {"east": 101}}, "clusters"),
        ({"clusters": {f"c{number}": 1 for number in range(33)}}, "clusters"),
        ({"gpus": 65}, "gpus"),
        ({"nodes": 17}, "nodes"),
        ({"nodes": -1}, "nodes"),
        ({"engine": "steam"}, "engine"),
    ],
)
def test_bounds_that_cannot_be_are_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        require_bounds(pb.PutServingRequest(**fields))
    assert caught.value.param == param
    assert param in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"accelerator": "a" * 101}, "accelerator"),
        ({"accelerator": "a\nb"}, "accelerator"),
        ({"accelerator": "{{ b }}"}, "accelerator"),
        ({"accelerator": "-b"}, "accelerator"),
        ({"memory_bytes": -1}, "memory_bytes"),
        ({"memory_bytes": 1}, "memory_bytes"),
        ({"memory_bytes": 2**44 + 1}, "memory_bytes"),
        ({"priority": "urgent"}, "priority"),
    ],
)
def test_needs_that_cannot_be_are_refused(fields: dict[str, Any], param: str) -> None:
    request = pb.PutServingRequest(**fields)
    complete(request, None)
    with pytest.raises(InvalidArgument) as caught:
        require_needs(request)
    assert (caught.value.param, caught.value.message.split()[0]) == (param, param)


@pytest.mark.parametrize(
    "name", ["", "NVIDIA-H100-80GB-HBM3", "NVIDIA H100 (80 GB)", "nvidia.com/mig-1g.10gb", "spot_a"]
)
def test_names_that_clusters_report_are_taken(name: str) -> None:
    request = pb.PutServingRequest(accelerator=name, memory_bytes=2**30, priority="high")
    require_needs(request)


def test_what_a_gateway_does_not_know_stays_as_it_is() -> None:
    before = Serving(
        "proj", "m", "org", "mv", "mv", 1, 0.0, "", target_cache=0, target_wait_seconds=5,
        accelerator="L4", memory_bytes=2**30, priority="low",
    )  # fmt: skip
    request = pb.PutServingRequest(model="m", target_gpu=70)
    complete(request, before)
    assert request == pb.PutServingRequest(
        model="m", target_cache=0, target_gpu=70, target_wait_seconds=5, sleep_seconds=0,
        accelerator="L4", memory_bytes=2**30, priority="low", dedicated=False, training="",
        follow="",
    )  # fmt: skip
    request = pb.PutServingRequest(model="m", target_wait_seconds=0)
    complete(request, before)
    assert request.target_wait_seconds == 0, "that is said"
    request = pb.PutServingRequest(model="m")
    complete(request, None)
    assert request == pb.PutServingRequest(
        model="m", target_cache=90, target_gpu=0, target_wait_seconds=0, sleep_seconds=0,
        accelerator="", memory_bytes=0, priority="normal", dedicated=False, training="",
        follow="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("engine", "fields", "arguments", "said"),
    [
        ("builtin", {"nodes": 2}, {}, "'builtin' runs on one node; 'vllm' runs on several"),
        ("vllm", {"nodes": 2, "gpus": 4}, {"tensor_parallel": 3}, "is 6; the engine has 8 GPUs"),
        ("vllm", {"gpus": 2}, {"pipeline_parallel": 4}, "is 4; the engine has 2 GPUs (one node)"),
    ],
)
def test_what_cannot_be_divided_over_its_nodes_is_refused_with_numbers(
    engine: str, fields: dict[str, Any], arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        require_group(pb.PutServingRequest(**fields), engine, EngineArguments(**arguments))
    assert said in caught.value.message


@pytest.mark.parametrize(("experts", "refused"), [(0, False), (1, True), (64, False)])
def test_experts_are_divided_of_models_that_have_some(experts: int, refused: bool) -> None:
    model = models_pb2.Model(id="m", footprint=models_pb2.ModelFootprint(experts=experts))
    require_experts(model, EngineArguments(expert_parallel=False))
    if not refused:
        require_experts(model, EngineArguments(expert_parallel=True))
        return
    with pytest.raises(InvalidArgument, match="m has no experts") as caught:
        require_experts(model, EngineArguments(expert_parallel=True))
    assert caught.value.param == "arguments.expert_parallel"


@pytest.mark.parametrize("engine", ["builtin", "llamacpp"])
def test_engines_that_do_not_divide_experts_refuse_to(engine: str) -> None:
    request = pb.PutServingRequest(arguments=clusters_pb2.EngineArguments(expert_parallel=True))
    with pytest.raises(InvalidArgument, match=f"{engine!r} takes no expert_parallel") as caught:
        arguments_of(request, engine)
    assert caught.value.param == "arguments.expert_parallel"


@pytest.mark.parametrize(
    ("arguments", "gpus", "nodes", "parts"),
    [
        ({}, 4, 2, (4, 2)),
        ({}, 0, 2, (1, 2)),
        ({"tensor_parallel": 8}, 4, 2, (8, 1)),
        ({"tensor_parallel": 2}, 4, 2, (2, 4)),
        ({"pipeline_parallel": 4}, 4, 2, (2, 4)),
        ({"pipeline_parallel": 2}, 4, 1, (2, 2)),
        ({"tensor_parallel": 2}, 4, 1, (2, 1)),
        # Without GPUs, processes of one machine.
        ({"tensor_parallel": 2}, 0, 1, (2, 1)),
    ],
)
def test_an_engine_is_divided_within_its_nodes_first(
    arguments: dict[str, Any], gpus: int, nodes: int, parts: tuple[int, int]
) -> None:
    assert divided(EngineArguments(**arguments), gpus, nodes) == parts
    require_group(
        pb.PutServingRequest(gpus=gpus, nodes=nodes), "vllm", EngineArguments(**arguments)
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"engine": "sglang"}, "'sglang' cannot sleep; those of builtin, llamacpp, vllm can"),
        ({"engine": "vllm", "nodes": 2}, "on several nodes cannot sleep"),
        ({"idle_seconds": 60}, "less than the 60 seconds after which engines end"),
        ({"sleep_seconds": 600}, "less than the 600 seconds"),
    ],
)
def test_a_sleep_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    policy = InferencePolicy("builtin", 8, 4, 600, 1800)
    request = pb.PutServingRequest(**({"sleep_seconds": 60} | fields))
    with pytest.raises(InvalidArgument) as caught:
        require_sleep(request, policy, [])
    assert said in caught.value.message
    assert caught.value.param == "sleep_seconds"
    request = pb.PutServingRequest(sleep_seconds=60)
    machine, pods = (
        clusters_pb2.Cluster(
            capacity=clusters_pb2.Capacity(engines=["builtin"], sleeping_engines=sleeping)
        )
        for sleeping in (["builtin"], [])
    )
    for clusters in ([], [machine], [pods, machine]):
        require_sleep(request, policy, clusters)
    with pytest.raises(InvalidArgument, match="No live cluster lets"):
        require_sleep(request, policy, [pods])
    require_sleep(pb.PutServingRequest(sleep_seconds=600, min_replicas=1), policy, [])
    with pytest.raises(InvalidArgument, match="sglang"):
        require_sleep(request, replace(policy, engine="sglang"), [])


def test_what_can_be_is_taken() -> None:
    require_bounds(pb.PutServingRequest())
    require_bounds(pb.PutServingRequest(idle_seconds=60, clusters={"east": 100}, engine="vllm"))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"start": "sometimes"}, "start"),
        ({"start": "0 0 30 2 *"}, "start"),
        ({"end": "61 * * * *"}, "end"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 4}, "replicas"),
    ],
)
def test_windows_that_cannot_be_are_refused(fields: dict[str, Any], name: str) -> None:
    windows = [pb.ScheduleWindow(**WINDOW), pb.ScheduleWindow(**WINDOW | fields)]
    with pytest.raises(InvalidArgument) as caught:
        schedule_of(pb.PutServingRequest(max_replicas=3, schedule=windows))
    assert caught.value.param == f"schedule.1.{name}"
    assert caught.value.message.startswith(caught.value.param)
    assert "Value error" not in caught.value.message


def test_a_schedule_has_bounds() -> None:
    with pytest.raises(InvalidArgument) as caught:
        schedule_of(pb.PutServingRequest(schedule=[pb.ScheduleWindow(**WINDOW)] * 17))
    assert caught.value.param == "schedule"
