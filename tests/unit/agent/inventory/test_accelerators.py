"""Accelerators among a node's resources, and their names."""

import pytest

from windlass_agent.inventory.accelerators import family_of, product, replicas


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-1c.3g.20gb",
        "nvidia.com/mig-1g.10gb.me.shared",
        "amd.com/gpu",
        "amd.com/cpx_nps4",
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neuroncore",
        "aws.amazon.com/neurondevice",
    ],
)
def test_devices_are_counted_as_accelerators(resource: str) -> None:
    assert family_of(resource)


@pytest.mark.parametrize(
    "resource",
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "hugepages-1Gi",
        "nvidia.com/gpumem",
        "nvidia.com/gpucores",
        "gpu.intel.com/millicores",
        "gpu.intel.com/i915_monitoring",
        "rdma/hca",
        "example.nvidia.com/gpu",
    ],
)
def test_what_only_surrounds_a_device_is_not_counted(resource: str) -> None:
    assert family_of(resource) is None
    assert product(resource, {"nvidia.com/gpu.product": "H100"}) == ""


NVIDIA = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.replicas": "4"}


@pytest.mark.parametrize(
    ("resource", "labels", "name"),
    [
        ("nvidia.com/gpu", NVIDIA, "NVIDIA-A100-SXM4-40GB"),
        ("nvidia.com/gpu.shared", NVIDIA, "NVIDIA-A100-SXM4-40GB"),
        (
            "nvidia.com/mig-1g.5gb",
            NVIDIA | {"nvidia.com/mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
            "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        ),
        ("nvidia.com/mig-2g.10gb", NVIDIA, "NVIDIA-A100-SXM4-40GB"),
        ("nvidia.com/gpu", {"cloud.google.com/gke-accelerator": "nvidia-l4"}, "nvidia-l4"),
        ("amd.com/gpu", {"amd.com/gpu.product-name": "AMD_Instinct_MI300X"}, "AMD_Instinct_MI300X"),
        ("amd.com/gpu", {"beta.amd.com/gpu.family": "AI"}, "AI"),
        ("gpu.intel.com/xe", {"gpu.intel.com/product": "Max_1550"}, "Max_1550"),
        (
            "google.com/tpu",
            {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice"},
            "tpu-v6e-slice",
        ),
        (
            "aws.amazon.com/neuroncore",
            {"node.kubernetes.io/instance-type": "trn2.48xlarge"},
            "trn2.48xlarge",
        ),
        ("nvidia.com/gpu", {}, ""),
    ],
)
def test_the_model_is_what_the_labels_say(resource: str, labels: dict[str, str], name: str) -> None:
    assert product(resource, labels) == name


@pytest.mark.parametrize(
    ("resource", "labels", "count"),
    [
        ("nvidia.com/gpu", NVIDIA, 4),
        ("nvidia.com/gpu.shared", NVIDIA, 4),
        ("nvidia.com/mig-1g.5gb.shared", {"nvidia.com/mig-1g.5gb.replicas": "2"}, 2),
        ("nvidia.com/mig-1g.5gb", NVIDIA, 0),
        ("nvidia.com/gpu", {"nvidia.com/gpu.replicas": "1"}, 0),
        ("nvidia.com/gpu", {"nvidia.com/gpu.replicas": "x" * 63}, 0),
        ("amd.com/gpu", {}, 0),
    ],
)
def test_shared_devices_say_how_often(resource: str, labels: dict[str, str], count: int) -> None:
    assert replicas(resource, labels) == count
