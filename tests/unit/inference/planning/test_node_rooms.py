"""Engines on nodes of a cluster, and on machines without GPUs: what they get, what is refused."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import EngineArguments
from windlass.inference.domain import Engine, InferencePolicy, Name, Rows, Serving, View
from windlass.inference.planning import EngineChanges, Planner
from windlass.kubernetes.resources import NVIDIA_GPU
from windlass.modelfiles.footprint import Footprint
from windlass.modelfiles.quantization import Quantization

GIB = 2**30
NOW = 1_000_000.0
POLICY = InferencePolicy("vllm", 8, 4, 600, 1e9)
# 70 billions of 16 bits.
LARGE = Footprint(
    weight_bytes=130 * GIB, kv_bytes=327_680, windowed_kv_bytes=0, window=0,
    adapter_bytes=25_000_000, heads=64, kv_heads=8, context_length=8192, weight_width=2,
)  # fmt: skip
SMALL = replace(LARGE, weight_bytes=6 * GIB)


def shape(devices: int, memory: int, **more: Any) -> pb.NodeShape:
    found: dict[str, Any] = {"resource": NVIDIA_GPU, "memory_bytes": 500 * GIB, "nodes": 2} | more
    return pb.NodeShape(devices=devices, device_memory_bytes=memory * GIB, **found)


def cluster(*shapes: pb.NodeShape, engine_gpus: int = 1) -> pb.Cluster:
    return pb.Cluster(
        id="east", live=True, embedded=True, shared=True, roles=["engines"], executor="kubernetes",
        capacity=pb.Capacity(
            engines=["vllm", "builtin", "llamacpp"], grouped_engines=["vllm"], engine_slots=4,
            gpus=sum(one.devices * one.nodes for one in shapes), memory_bytes=2**50,
            node_shapes=shapes, each_engine=pb.EngineShare(gpus=engine_gpus),
        ),
    )  # fmt: skip


def machine(memory: int) -> pb.Cluster:
    return pb.Cluster(
        id="east", live=True, embedded=True, shared=True, roles=["engines"], executor="process",
        capacity=pb.Capacity(
            engines=["vllm", "builtin", "llamacpp"], engine_slots=4, memory_bytes=memory * GIB
        ),
    )  # fmt: skip


def planned(
    where: pb.Cluster,
    model: Footprint = LARGE,
    *,
    quantization: Quantization | None = None,
    engines: tuple[Engine, ...] = (),
    **serving: Any,
) -> EngineChanges:
    name = Name("big", "proj-a", "org-a", "big", "big", model, quantization)
    wanted = Serving("proj-a", "big", "org-a", "big", "big", 1, NOW - 60, **serving)
    view = View(names={"big": name}, statuses={}, clusters={"east": where})
    numbers = count()
    rows = Rows(NOW, list(engines), [], [wanted])
    return Planner(rows, view, POLICY, lambda: f"eng-{next(numbers)}").plan()


def gpus(*shapes: pb.NodeShape, **more: Any) -> int:
    (made,) = planned(cluster(*shapes), **more).creates
    return made.gpus


def refused(where: pb.Cluster, model: Footprint = LARGE, **more: Any) -> str:
    plan = planned(where, model, **more)
    assert not plan.creates
    ((_, error),) = plan.errors
    return error


def test_a_replica_gets_the_fewest_gpus_on_which_it_fits_on_a_node() -> None:
    assert gpus(shape(8, 80)) == 2
    assert gpus(shape(8, 40)) == 4
    # What every engine gets there is enough.
    assert gpus(shape(8, 80), model=SMALL) == 0
    (made,) = planned(cluster(shape(8, 80), engine_gpus=4)).creates
    assert made.gpus == 0


def test_it_fits_on_whichever_node_it_comes_to() -> None:
    assert gpus(shape(8, 80), shape(8, 24)) == 8
    # One that is too small for all of it has no say.
    assert gpus(shape(8, 80), shape(4, 24)) == 2


def test_nothing_is_divided_over_parts_of_a_gpu() -> None:
    parts = shape(7, 10, resource="nvidia.com/mig-1g.10gb")
    assert gpus(shape(8, 80), parts, model=replace(LARGE, weight_bytes=20 * GIB)) == 0
    assert "would have 10.0 GiB of GPU memory" in refused(cluster(parts))


def test_what_an_engine_has_it_keeps_while_that_is_a_choice() -> None:
    (made,) = planned(cluster(shape(8, 80))).creates
    there = replace(made, put_generation=1)
    assert not planned(cluster(shape(8, 80), shape(8, 24)), engines=(there,)).updates
    ended = planned(cluster(shape(8, 40)), engines=(there,)).updates
    assert ended
    # As nothing is known any more.
    assert not planned(cluster(shape(8, 0)), engines=(there,)).updates


def test_a_model_too_big_for_every_node_is_refused_with_the_numbers() -> None:
    words = "The weights take 130.0 GiB, the keys and values of 2048 tokens 0.6 GiB and the engine "
    assert refused(cluster(shape(4, 24), shape(2, 40))) == (
        f"{words}at least 0.5 GiB; an engine would have 96.0 GiB of GPU memory in the largest live "
        "cluster."
    )
    assert "an engine would have 24.0 GiB" in refused(cluster(shape(4, 24)), gpus=1)
    assert refused(cluster(shape(4, 80)), gpus=8) == (
        "Each engine should have 8 GPUs on a node; the largest node has 4."
    )


def test_nodes_together_hold_more_than_one() -> None:
    where = cluster(shape(2, 40))
    said = refused(where, nodes=1, gpus=2)
    assert "an engine would have 80.0 GiB" in said
    (made,) = planned(where, nodes=2, gpus=2).creates
    assert (made.gpus, made.nodes) == (2, 2)
    twice = replace(LARGE, weight_bytes=200 * GIB)
    said = refused(where, twice, nodes=2, gpus=2)
    assert "80.0 GiB of GPU memory on each of 2 nodes" in said


@pytest.mark.parametrize("shapes", [[shape(8, 0)], [shape(8, 24), shape(8, 0)], []])
def test_nothing_is_guessed(shapes: list[pb.NodeShape]) -> None:
    assert gpus(*shapes) == 0
    assert gpus(shape(8, 80), model=SMALL) == 0


@pytest.mark.parametrize("where", [cluster(shape(8, 0), engine_gpus=0), machine(500)])
def test_an_engine_without_gpus_has_its_nodes_memory(where: pb.Cluster) -> None:
    for kind in ("vllm", "llamacpp", "builtin"):
        (made,) = planned(where, engine=kind).creates
        assert made.gpus == 0
        thrice = replace(LARGE, weight_bytes=3 * LARGE.weight_bytes, weight_width=0)
        assert planned(where, thrice, engine=kind).creates
        said = refused(where, replace(thrice, weight_bytes=500 * GIB), engine=kind)
        assert "and the engine at least 0.5 GiB; an engine would have 500.0 GiB of memory" in said


def test_what_it_keeps_in_memory_is_what_its_kind_reads_weights_as() -> None:
    # The built-in engine computes with 32 bits on processors.
    assert "The weights take 260.0 GiB" in refused(machine(200), engine="builtin")
    half = EngineArguments(dtype="bfloat16")
    assert planned(machine(200), engine="builtin", arguments=half).creates
    assert planned(machine(200), engine="llamacpp").creates
    whole = EngineArguments(dtype="float32", context_length=8192)
    said = refused(machine(200), engine="vllm", arguments=whole)
    assert "take 260.0 GiB, the keys and values of 8192 tokens 5.0 GiB" in said
    # What is quantized stays so.
    four = Quantization("awq", 4)
    kept = replace(SMALL, weight_width=0)
    assert planned(machine(8), kept, quantization=four, engine="vllm").creates


def test_weights_that_an_engine_cannot_read_start_nothing() -> None:
    four = Quantization("mxfp4", 4)
    said = refused(machine(500), quantization=four, engine="vllm")
    assert said.startswith(
        "The weights are quantized by mxfp4 with 4 bits, which the engine 'vllm'"
    )
    assert "cannot read without a GPU" in said
    assert gpus(shape(8, 80), quantization=four) == 2
    assert "'builtin' cannot read;" in refused(
        cluster(shape(8, 80)), quantization=four, engine="builtin"
    )


def test_agents_of_the_release_before_refuse_nothing() -> None:
    silent = cluster(engine_gpus=0)
    silent.capacity.gpus = 8
    silent.capacity.memory_bytes = GIB
    assert planned(silent).creates


def named(shape_: pb.NodeShape, product: str, *flavors: str) -> pb.NodeShape:
    found = pb.NodeShape(product=product, flavors=flavors)
    found.MergeFrom(shape_)
    return found


def test_an_accelerator_is_where_nodes_have_it() -> None:
    where = cluster(named(shape(8, 80), "H100", "spot"), named(shape(4, 24), "L4"), engine_gpus=0)
    for name in ("H100", "spot"):
        (made,) = planned(where, accelerator=name).creates
        assert (made.accelerator, made.gpus) == (name, 2)
    (made,) = planned(where, SMALL, accelerator="L4").creates
    assert made.gpus == 1, "an engine on an accelerator has one of it at least"
    said = refused(where, accelerator="L4")
    assert "an engine would have 96.0 GiB of GPU memory" in said
    assert refused(where, accelerator="A100") == ("No live cluster has the accelerator 'A100'.")
    # An agent of the release before says nothing, and would not choose.
    assert "accelerator 'A100'" in refused(cluster(), accelerator="A100")


def test_a_machine_has_the_accelerator_that_all_of_its_gpus_are() -> None:
    where = machine(64)
    where.capacity.devices.extend(
        pb.Device(id=str(at), product="NVIDIA L4", memory_bytes=24 * GIB) for at in range(2)
    )
    where.capacity.gpus = 2
    (made,) = planned(where, SMALL, accelerator="NVIDIA L4").creates
    assert made.gpus == 1
    where.capacity.devices[1].product = "NVIDIA T4"
    assert "accelerator 'NVIDIA L4'" in refused(where, SMALL, accelerator="NVIDIA L4")


def test_memory_is_asked_for_where_there_is_so_much() -> None:
    for where in (cluster(shape(8, 80)), machine(500)):
        (made,) = planned(where, SMALL, memory_bytes=400 * GIB).creates
        assert made.memory_bytes == 400 * GIB
        assert refused(where, SMALL, memory_bytes=600 * GIB) == (
            "Each engine should have 600.0 GiB of memory; the largest machine or node has 500.0 "
            "GiB."
        )
    # An engine without GPUs has no more than it is given.
    said = refused(machine(500), SMALL, memory_bytes=4 * GIB)
    assert "an engine would have 4.0 GiB of memory" in said


def test_memory_is_asked_of_agents_that_give_it() -> None:
    silent = cluster(shape(8, 80))
    silent.capacity.ClearField("each_engine")
    # One of the release before takes the engine without it, and an update would end that.
    assert refused(silent, SMALL, memory_bytes=GIB) == (
        "No live cluster's agent gives engines the memory that they ask for; update it."
    )
    assert planned(silent, SMALL).creates


def test_a_priority_is_where_kueue_has_a_class_for_it() -> None:
    where = cluster(shape(8, 80))
    assert refused(where, priority="high") == (
        "No live cluster has a class of Kueue for the priority 'high'."
    )
    where.capacity.engine_priorities.append("high")
    (made,) = planned(where, priority="high").creates
    assert made.priority == "high"
    (made,) = planned(machine(500), SMALL, priority="low").creates
    assert made.priority == "low"
