"""Advice on engines that found too little memory at their start: what to lower, with numbers."""

import re

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.download import bytes_of
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.memory import in_units

# Words of torch, CUDA, vLLM (v1/core/kv_cache_utils.py, v1/worker/utils.py), SGLang and llama.cpp.
_SIGNS = re.compile(
    r"out of memory|OutOfMemoryError|MemoryError|cannot allocate memory|failed to allocate"
    r"|no available memory for the cache|KV cache is needed, which is larger"
    r"|is less than desired GPU memory utilization|not enough memory",
    re.IGNORECASE,
)


def ran_out(words: str) -> bool:
    """Returns True where an engine's last words say that it had too little memory."""
    return bool(_SIGNS.search(words))


def advice(engine: pb.EngineWorkload, allotment: Allotment) -> str:
    """Returns what the engine had, and which arguments make it need less."""
    weights = in_units(bytes_of(engine))
    gpus = [device.memory_bytes for device in allotment.devices]
    if not gpus:
        had = f"{in_units(allotment.limits().memory)} of its machine's memory"
    elif all(gpus):
        had = " + ".join(map(in_units, gpus)) + " on its GPUs"
    else:
        had = f"{len(gpus)} GPU{'s' * (len(gpus) > 1)}"
    lower = ["context_length", "max_concurrency"]
    if not gpus or engine.arguments.kv_cache_bytes:
        lower.append("kv_cache_bytes")
    more = "give it more GPUs" if gpus else "have the operator raise agent.engine_memory_bytes"
    named = f"{', '.join(lower[:-1])} or {lower[-1]}"
    return f"It had {had} for weights of {weights}. Lower {named}, or {more}."
