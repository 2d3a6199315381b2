"""Advice on engines that found too little memory at their start: what to lower, with numbers."""

import re
from collections.abc import Sequence

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.download import bytes_of
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


def advice(engine: pb.EngineWorkload, *, gpus: Sequence[int], memory: int, setting: str) -> str:
    """Returns what the engine had, and which arguments make it need less.

    `gpus` are the bytes that each of its GPUs has, 0 where nobody says, and `memory` those of its
    machine that it may use, which the operator raises by `setting`.
    """
    weights = in_units(bytes_of(engine))
    lower = ["context_length", "max_concurrency"]
    if not gpus or engine.arguments.kv_cache_bytes:
        lower.append("kv_cache_bytes")
    more = "give it more GPUs" if gpus else f"have the operator raise {setting}"
    named = f"{', '.join(lower[:-1])} or {lower[-1]}"
    return f"It had {_had(gpus, memory)} for weights of {weights}. Lower {named}, or {more}."


def _had(gpus: Sequence[int], memory: int) -> str:
    if not gpus:
        return f"{in_units(memory)} of its machine's memory"
    if not all(gpus):
        return f"{len(gpus)} GPU{'s' * (len(gpus) > 1)}"
    if len(gpus) > 1 and len(set(gpus)) == 1:
        return f"{len(gpus)} GPUs of {in_units(gpus[0])} each"
    return " + ".join(map(in_units, gpus)) + " on its GPUs"
