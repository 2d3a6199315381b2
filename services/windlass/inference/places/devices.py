"""GPUs that an engine gets on a machine whose devices' memory is known."""

from windlass.api.clusters.v1 import clusters_pb2
from windlass.engine_arguments import EngineArguments
from windlass.inference.domain import Name
from windlass.serving_fit import GIB, DoesNotFit, fit

# They keep the weights on their GPUs, all of them, and divide them over several.
DIVIDE = frozenset({"sglang", "vllm"})


def fitting_gpus(
    model: Name,
    cluster: clusters_pb2.Cluster,
    arguments: EngineArguments,
    adapters: int,
    draft: Name | None = None,
) -> int:
    """Returns the fewest GPUs on which a model fits, by the estimate; 0 for one, or where unknown.

    All that may be divided over where it fits on none: the engine says then what it lacks. A draft
    whose size is not known counts for nothing.
    """
    memory = _memory(cluster)
    if model.footprint is None or not memory:
        return 0
    number, most = 1, 1
    beside = draft.footprint if draft else None
    while number <= len(memory):
        if not any(one.heads % number for one in (model.footprint, beside) if one):
            most = number
            try:
                fit(
                    model.footprint,
                    devices=number,
                    memory_bytes=memory[number - 1],
                    arguments=arguments,
                    adapters=adapters,
                    draft=beside,
                )
                break
            except DoesNotFit:
                pass
        number *= 2
    return most if most > 1 else 0


def cannot_hold(
    model: Name, cluster: clusters_pb2.Cluster, gpus: int, draft: Name | None = None
) -> str:
    """Returns why the weights alone are more than so many GPUs hold, 0 for all; empty otherwise.

    What is not certain is left to the engine, which measures.
    """
    memory = _memory(cluster)[: gpus or None]
    if model.footprint is None or not memory:
        return ""
    beside = draft.footprint.weight_bytes if draft and draft.footprint else 0
    weights = model.footprint.weight_bytes + beside
    if weights <= sum(memory):
        return ""
    of_draft = f" Of the weights, {beside / GIB:.1f} GiB are its draft's." if beside else ""
    return (
        f"The weights take {weights / GIB:.1f} GiB; an engine would have "
        f"{sum(memory) / GIB:.1f} GiB of GPU memory in the largest live cluster.{of_draft}"
    )


def _memory(cluster: clusters_pb2.Cluster) -> list[int]:
    """The memory of each device, the largest first; empty where that of one is not known."""
    found = sorted((one.memory_bytes for one in cluster.capacity.devices), reverse=True)
    return found if all(found) else []
