"""Engines that run in pods, by the images of the operator."""

from dataclasses import dataclass
from pathlib import Path

from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.llamacpp_engine import LlamacppEngine
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.sglang.kind import SglangEngine
from windlass_agent.engines.vllm_engine import VllmEngine

NAMES = ("builtin", "llamacpp", "sglang", "vllm")


@dataclass(frozen=True)
class PodCompleter:
    """A program of ours that completes a kind: what it starts, and the memory that it needs."""

    program: str
    memory_bytes: int


# llama.cpp's writes GGUF, for which it has torch for a while.
COMPLETED = {
    "llamacpp": PodCompleter("/app/llama-server", 2 * 2**30),
    "sglang": PodCompleter("python3", 2**29),
}


def engine_in_pod(
    name: str, python: Path, flags: tuple[str, ...] = (), program: str = ""
) -> EngineKind:
    """The kind of engine whose container has this Python; raises ValueError for other kinds.

    `flags` are the operator's for vLLM and SGLang; `program` is what is completed, empty for the
    usual one.
    """
    match name:
        case "builtin":
            return BuiltinEngine(python)
        case "llamacpp":
            program = program or COMPLETED[name].program
            return LlamacppEngine(Path(program), python, is_neighbour=True)
        case "sglang":
            program = program or COMPLETED[name].program
            return SglangEngine(Path(program), flags, python, is_neighbour=True)
        case "vllm":
            return VllmEngine(python, flags)
    raise ValueError(f"{name!r} is no engine that runs in a pod")
