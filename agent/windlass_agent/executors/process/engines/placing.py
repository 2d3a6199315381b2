"""The share of a machine that an engine gets: GPUs, CPUs and a bound of memory."""

from collections.abc import Callable
from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import from_message, require_gpus
from windlass_agent.download import bytes_of
from windlass_agent.engines.port import EngineKind
from windlass_agent.executors.process.allotment import Allotment, ResourceRequest
from windlass_agent.executors.process.engines.engine_failure import EngineFailure
from windlass_agent.executors.process.engines.engine_house import EngineHouse
from windlass_agent.memory import MEMORY_FOR_WEIGHTS, engine_bound, in_units


async def get_place(
    workload: pb.Workload, kind: EngineKind, house: EngineHouse, waits: Callable[[], None]
) -> Allotment:
    """Waits for the share of the machine that an engine asks for, and says so by `waits`.

    Raises EngineFailure where there is no such share, or the engine cannot use it.
    """
    spec, places = workload.engine, house.places
    asked = _asked(workload, kind, house.share)
    if never := places.allocator.never(asked):
        raise EngineFailure("NoRoom", never)
    waits()
    allotment = await places.acquire(workload.id, asked)
    needed = kind.memory_bytes + MEMORY_FOR_WEIGHTS * bytes_of(spec)
    needed += spec.arguments.kv_offload_bytes
    allotment = replace(allotment, memory_bound=engine_bound(needed, places.size))
    if spec.sleeps and not kind.sleeps(len(allotment.devices)):
        given = "with a GPU" if allotment.devices else "without a GPU"
        raise EngineFailure("NoSleep", f"The engine {kind.name!r} does not sleep {given}.")
    _require_cache(spec, allotment)
    return allotment


def _asked(workload: pb.Workload, kind: EngineKind, usual: ResourceRequest) -> ResourceRequest:
    if workload.HasField("resources"):
        usual = ResourceRequest.of(workload.resources)
    spec = workload.engine
    gpus = spec.gpus or usual.gpus
    return replace(
        usual,
        gpus=gpus,
        memory_bytes=spec.memory_bytes or usual.memory_bytes,
        alone=gpus > 0 and not kind.shares_gpus,
    )


def _require_cache(spec: pb.EngineWorkload, allotment: Allotment) -> None:
    """Raises EngineFailure for a cache that would not fit into the machine's memory."""
    most = allotment.limits().memory
    try:
        require_gpus(from_message(spec.arguments), len(allotment.devices))
    except ValueError as error:
        raise EngineFailure("NoRoom", str(error)) from error
    name = "kv_offload_bytes" if allotment.devices else "kv_cache_bytes"
    if (asked := getattr(spec.arguments, name)) > most:
        raise EngineFailure(
            "NoRoom",
            f"{name} of {in_units(asked)} do not fit into the {in_units(most)} of "
            "memory that an engine may use on its machine.",
        )
