"""Engines that run in pods, by the images of the operator."""

from pathlib import Path

from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.vllm_engine import VllmEngine

NAMES = ("builtin", "vllm")


def engine_in_pod(name: str, python: Path, flags: tuple[str, ...] = ()) -> EngineKind:
    """The kind of engine whose image has this Python; raises ValueError for other kinds.

    `flags` are the operator's for vLLM.
    """
    match name:
        case "builtin":
            return BuiltinEngine(python)
        case "vllm":
            return VllmEngine(python, flags)
    raise ValueError(f"{name!r} is no engine that runs in a pod")
