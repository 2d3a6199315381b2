"""Registry of the engines that this machine can start."""

from pathlib import Path

from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.vllm_engine import VllmEngine


def engines(*, vllm_python: Path | None = None) -> dict[str, EngineKind]:
    """The installed engines by name, the preferred one first; may take seconds.

    `vllm_python` is the interpreter of an environment with vLLM.
    """
    known: list[EngineKind] = [BuiltinEngine()]
    if vllm_python is not None:
        # Engines start in folders of their own. A link is left as it is: it is how an environment
        # knows itself.
        known.append(VllmEngine(vllm_python.absolute()))
    return {engine.name: engine for engine in known if engine.installed()}
