"""Accelerator resources: their names, their models, and how many ways each is shared."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.kubernetes.resources import NVIDIA_GPU

Labels = Mapping[str, str]

# Clouds' own labels for the model, where the maker's discovery does not run.
_CLOUD_PRODUCTS = (
    "cloud.google.com/gke-accelerator",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-name",
)
# The same for the memory of each whole GPU, in MiB.
_CLOUD_MEMORIES = (
    "eks.amazonaws.com/instance-gpu-memory",
    "karpenter.k8s.aws/instance-gpu-memory",
)
_WHOLE = frozenset({NVIDIA_GPU, "amd.com/gpu"})
_MIB = 2**20
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


@dataclass(frozen=True, slots=True)
class Family:
    """Resources of one maker, and the labels that may name their model, the best first.

    In a label `{resource}` stands for the resource without the mark of sharing.
    """

    resources: re.Pattern[str]
    products: tuple[str, ...]


def _family(resources: str, *products: str) -> Family:
    return Family(re.compile(resources), products)


# A pattern names whole devices or fixed parts of them, never side resources such as
# `gpu.intel.com/millicores`, which would be counted as devices of their own.
FAMILIES = (
    # Whole GPUs, MIG profiles, and either shared by time-slicing or MPS.
    _family(
        r"nvidia\.com/(?:gpu|mig-[\w.]+?)(?:\.shared)?",
        "{resource}.product",
        f"{NVIDIA_GPU}.product",
        *_CLOUD_PRODUCTS,
    ),
    # Whole GPUs, and compute partitions named by their mode.
    _family(
        r"amd\.com/(?:gpu|[sdqc]px_nps\d)",
        "amd.com/gpu.product-name",
        "beta.amd.com/gpu.product-name",
        "amd.com/gpu.family",
        "beta.amd.com/gpu.family",
        *_CLOUD_PRODUCTS,
    ),
    _family(r"gpu\.intel\.com/(?:i915|xe)", "gpu.intel.com/product", "gpu.intel.com/family"),
    _family(r"habana\.ai/gaudi", _INSTANCE_TYPE),
    _family(r"google\.com/tpu", "cloud.google.com/gke-tpu-accelerator"),
    # A node may offer the same chips both as devices and as cores.
    _family(
        r"aws\.amazon\.com/neuron(?:core|device)?",
        "eks.amazonaws.com/instance-accelerator-name",
        "karpenter.k8s.aws/instance-accelerator-name",
        _INSTANCE_TYPE,
    ),
)
_SHARED = ".shared"


def family_of(resource: str) -> Family | None:
    """The family of an accelerator; None for any other resource."""
    return next((family for family in FAMILIES if family.resources.fullmatch(resource)), None)


def accelerators_among(resources: Iterable[str]) -> list[str]:
    """Returns the resource names that are accelerators, sorted."""
    return sorted(name for name in resources if family_of(name))


def product(resource: str, labels: Labels) -> str:
    """The model of an accelerator as a node's labels say it; empty when they do not."""
    family = family_of(resource)
    if family is None:
        return ""
    plain = resource.removesuffix(_SHARED)
    named = (labels.get(label.format(resource=plain)) for label in family.products)
    return next((name for name in named if name), "")


def product_label(resource: str, labels: Labels) -> str:
    """The label of a node that names the model of an accelerator; empty for none."""
    name = product(resource, labels)
    family, plain = family_of(resource), resource.removesuffix(_SHARED)
    known = [label.format(resource=plain) for label in family.products] if family else []
    return next((label for label in known if name and labels.get(label) == name), "")


def device_memory(resource: str, labels: Labels) -> int:
    """Bytes of one device's memory as a node's labels say them.

    0 where they do not, and where several share a device.
    """
    if replicas(resource, labels) or resource.endswith(_SHARED):
        return 0
    clouds = _CLOUD_MEMORIES if resource in _WHOLE else ()
    # NVIDIA's discovery names the memory of whole GPUs and of MIG profiles alike, in MiB.
    said = (labels.get(label, "") for label in (f"{resource}.memory", *clouds))
    text = next((one for one in said if one), "")
    return int(text) * _MIB if text.isdecimal() and len(text) < 10 else 0


def replicas(resource: str, labels: Labels) -> int:
    """The number of this resource that share one device; 0 where a device is one owner's."""
    text = labels.get(f"{resource.removesuffix(_SHARED)}.replicas", "")
    count = int(text) if text.isdecimal() and len(text) < 6 else 0
    return count if count > 1 else 0
