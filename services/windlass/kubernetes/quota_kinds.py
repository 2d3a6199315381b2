"""Kinds of what a quota counts: GPUs, CPUs in thousandths, and bytes of memory; pure."""

GPUS, CPU, MEMORY = "gpus", "cpu", "memory"
# What Kueue counts beside accelerators.
_PLAIN = (CPU, MEMORY, "pods", "ephemeral-storage")


def kind_of(resource: str) -> str:
    """`gpus` for whatever counts devices, else the resource's own name."""
    plain = resource in _PLAIN or resource.startswith("hugepages-")
    return resource if plain else GPUS


def in_kinds(gpus: int, cpus: int, memory_bytes: int) -> dict[str, int]:
    """Amounts by kind of whole CPUs and bytes."""
    return {GPUS: gpus, CPU: 1000 * cpus, MEMORY: memory_bytes}


def spelled(kind: str, amount: int) -> str:
    """An amount in words: `8 GPUs`, `1.5 CPUs`, `64 GiB of memory`."""
    if kind == GPUS:
        return f"{amount} GPU{'' if amount == 1 else 's'}"
    if kind == CPU:
        return f"{amount / 1000:g} CPU{'' if amount == 1000 else 's'}"
    return f"{amount / 2**30:.4g} GiB of memory"
