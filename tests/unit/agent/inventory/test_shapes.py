"""Shapes of a cluster's nodes, by their labels, their flavors and the slices of drivers."""

from typing import Any

import pytest

from windlass.kubernetes.resources import NVIDIA_GPU
from windlass_agent.inventory.accelerators import device_memory, product_label
from windlass_agent.inventory.devices import node_devices, trim_class, trim_slice
from windlass_agent.inventory.nodes import trim_node
from windlass_agent.inventory.shapes import MAX_SHAPES, NodeChoice, node_choice, node_shapes

GIB = 2**30
H100_NAME = "NVIDIA-H100-80GB-HBM3"
H100 = {
    "nvidia.com/gpu.product": H100_NAME, "nvidia.com/gpu.memory": "81559",
    "pool": "fast",
}  # fmt: skip
MIG = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("resource", "labels", "memory"),
    [
        (NVIDIA_GPU, H100, 81_559 * 2**20),
        (MIG, {f"{MIG}.memory": "9728", **H100}, 9728 * 2**20),
        (MIG, H100, 0),
        (NVIDIA_GPU, {**H100, "nvidia.com/gpu.replicas": "4"}, 0),
        ("nvidia.com/gpu.shared", H100, 0),
        (NVIDIA_GPU, {"karpenter.k8s.aws/instance-gpu-memory": "24576"}, 24 * GIB),
        ("amd.com/gpu", {"eks.amazonaws.com/instance-gpu-memory": "8192"}, 8 * GIB),
        (MIG, {"karpenter.k8s.aws/instance-gpu-memory": "24576"}, 0),
        (NVIDIA_GPU, {"nvidia.com/gpu.memory": "80G"}, 0),
        (NVIDIA_GPU, {"nvidia.com/gpu.memory": "9" * 30}, 0),
        (NVIDIA_GPU, {}, 0),
    ],
)
def test_labels_say_the_memory_of_a_device(
    resource: str, labels: dict[str, str], memory: int
) -> None:
    assert device_memory(resource, labels) == memory


def test_the_label_that_names_a_product_is_found() -> None:
    assert product_label(NVIDIA_GPU, H100) == "nvidia.com/gpu.product"
    gke = {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    assert product_label(NVIDIA_GPU, gke) == "cloud.google.com/gke-accelerator"
    assert product_label(NVIDIA_GPU, {}) == product_label("cpu", H100) == ""


def node(labels: dict[str, str], memory: str = "64Gi", **resources: str) -> Any:
    offer = {"cpu": "8", "memory": memory} | {
        name.replace("__", "/").replace("_", "."): count for name, count in resources.items()
    }
    return trim_node({"metadata": {"labels": labels}, "status": {"allocatable": offer}})


def test_alike_nodes_are_one_shape() -> None:
    nodes = {
        "a": node(H100, nvidia_com__gpu="8"),
        "b": node(H100, nvidia_com__gpu="8"),
        "c": node({}),
        "d": node({}, memory="128Gi"),
    }
    flavors: Any = {"fast": {"spec": {"nodeLabels": {"pool": "fast"}}}, "any": {"spec": {}}}
    gpus, plain = node_shapes(nodes, {}, flavors, {NVIDIA_GPU})
    assert (gpus.nodes, gpus.devices, gpus.product) == (2, 8, "NVIDIA-H100-80GB-HBM3")
    assert (gpus.resource, gpus.device_memory_bytes) == (NVIDIA_GPU, 81_559 * 2**20)
    assert list(gpus.flavors) == ["fast"], "others ask for nothing"
    assert (plain.nodes, plain.memory_bytes, plain.devices) == (2, 128 * GIB, 0)
    assert not plain.flavors
    # Devices that no pod of the agent asks for are none.
    assert not any(one.devices for one in node_shapes(nodes, {}, {}, {"amd.com/gpu"}))
    # Of many that differ, those with the most memory are told.
    nodes |= {
        f"n{at}": node({"nvidia.com/gpu.memory": str(at + 1)}, nvidia_com__gpu="1")
        for at in range(2 * MAX_SHAPES)
    }
    found = node_shapes(nodes, {}, flavors, {NVIDIA_GPU})
    assert len(found) == MAX_SHAPES
    assert found[0].devices == 8


def test_nodes_of_one_type_leave_room_for_others() -> None:
    h100, l4 = 81_559, {"nvidia.com/gpu.product": "L4", "nvidia.com/gpu.memory": "23034"}
    nodes = {
        f"h{at}": node(H100, memory=f"{2**26 + 4 * at}Ki", nvidia_com__gpu="8") for at in range(70)
    }
    nodes["l"] = node(l4, nvidia_com__gpu="1")
    first, last = node_shapes(nodes, {}, {}, {NVIDIA_GPU})
    assert (first.nodes, first.device_memory_bytes) == (70, h100 * 2**20)
    assert first.memory_bytes == (2**26 + 4 * 69) * 1024, "that of the largest"
    assert (last.product, last.nodes) == ("L4", 1)


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        (H100_NAME, NodeChoice(NVIDIA_GPU, {"nvidia.com/gpu.product": H100_NAME})),
        (NVIDIA_GPU, NodeChoice(NVIDIA_GPU)),
        ("gpu.example.com", NodeChoice("gpu.example.com")),
        ("fast", NodeChoice(labels={"pool": "fast"})),
        ("any", None),
        ("T4", None),
        ("", None),
    ],
)
def test_a_name_of_a_shape_stands_for_what_pods_ask_for(
    name: str, choice: NodeChoice | None
) -> None:
    nodes = {"c": node({}), "a": node(H100, nvidia_com__gpu="8")}
    flavors: Any = {"fast": {"spec": {"nodeLabels": {"pool": "fast"}}}, "any": {"spec": {}}}
    assert node_choice(name, nodes, flavors, {NVIDIA_GPU, "gpu.example.com"}) == choice


@pytest.mark.parametrize(
    ("memory", "known"), [(("40Gi", "40Gi"), 40 * GIB), (("40Gi", "80Gi"), 0), (("",), 0)]
)
def test_drivers_say_the_memory_of_claimed_devices(memory: tuple[str, ...], known: int) -> None:
    made = [
        {"name": f"d{at}", "capacity": {"memory": {"value": one}} if one else {}}
        for at, one in enumerate(memory)
    ]
    spec = {"driver": "gpu.example.com", "pool": {"name": "n"}, "devices": made, "nodeName": "n"}
    claimed = node_devices({"gpu": trim_class({"spec": {}})}, [trim_slice({"spec": spec})])
    (found,) = node_shapes({"n": node({})}, claimed, {}, {"gpu"})
    assert (found.resource, found.devices) == ("gpu", len(memory))
    assert found.device_memory_bytes == known
