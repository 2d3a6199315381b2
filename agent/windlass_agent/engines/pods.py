"""Engines that run in pods, by the images of the operator."""

from pathlib import Path

from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.llamacpp_engine import LlamacppEngine
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.sglang.kind import SglangEngine
from windlass_agent.engines.vllm_engine import VllmEngine

NAMES = ("builtin", "llamacpp", "sglang", "vllm")
# Kinds that a program of ours completes, and what it starts in the container of upstream's image.
COMPLETED = {"llamacpp": "/app/llama-server", "sglang": "python3"}


def engine_in_pod(
    name: str, python: Path, flags: tuple[str, ...] = (), program: str = ""
) -> EngineKind:
    """The kind of engine whose container has this Python; raises ValueError for other kinds.

    `flags` are the operator's for vLLM and SGLang; `program` is what is completed, empty for the
    usual one.
    """
    completed = Path(program or COMPLETED.get(name, ""))
    match name:
        case "builtin":
            return BuiltinEngine(python)
        case "llamacpp":
            return LlamacppEngine(completed, python, is_neighbour=True)
        case "sglang":
            return SglangEngine(completed, flags, python, is_neighbour=True)
        case "vllm":
            return VllmEngine(python, flags)
    raise ValueError(f"{name!r} is no engine that runs in a pod")
