"""Nodes as the control plane sees them."""

from windlass_agent.inventory.nodes import MAX_LABELS, node_state, trim_node
from windlass_agent.inventory.pods import NodeUsage

NODE = {
    "metadata": {
        "name": "worker-1",
        "labels": {
            "kubernetes.io/hostname": "worker-1",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
            "nvidia.com/gfd.timestamp": "1",
            "feature.node.kubernetes.io/cpu-cpuid.ADX": "true",
        },
    },
    "spec": {},
    "status": {
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True"},
        ],
        "capacity": {
            "cpu": "96",
            "memory": "1Ti",
            "nvidia.com/gpu": "8",
            "nvidia.com/mig-1g.10gb": "0",
        },
        "allocatable": {"cpu": "95500m", "memory": "1000Gi", "nvidia.com/gpu": "7"},
    },
}


def test_a_node_says_what_it_offers_and_what_of_it_is_used() -> None:
    usage = NodeUsage(2000, 1 << 30, {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1})
    state = node_state("worker-1", trim_node(NODE), usage)
    assert (state.name, state.ready, state.schedulable) == ("worker-1", True, True)
    assert (state.cpu_millis, state.memory_bytes) == (95_500, 1000 << 30)
    assert (state.cpu_millis_used, state.memory_bytes_used) == (2000, 1 << 30)
    gpu, mig = state.accelerators
    assert (gpu.resource, gpu.product) == ("nvidia.com/gpu", "NVIDIA-H100-80GB-HBM3")
    assert (gpu.capacity, gpu.allocatable, gpu.running, gpu.pending) == (8, 7, 2, 1)
    assert (mig.resource, mig.capacity, mig.allocatable) == ("nvidia.com/mig-1g.10gb", 0, 0)


def test_a_cordoned_or_silent_node_takes_nothing() -> None:
    cordoned = trim_node(NODE | {"spec": {"unschedulable": True}})
    assert not cordoned.schedulable
    assert not trim_node({"metadata": {"name": "new"}}).ready


def test_labels_are_bounded_and_do_not_change_by_themselves() -> None:
    kept = trim_node(NODE).labels
    assert set(kept) == {"kubernetes.io/hostname", "nvidia.com/gpu.product"}
    many = {f"a.example/{at}": "x" for at in range(200)} | {"nvidia.com/gpu.product": "L4"}
    trimmed = trim_node({"metadata": {"labels": many}}).labels
    assert len(trimmed) == MAX_LABELS
    assert trimmed["nvidia.com/gpu.product"] == "L4"
