"""Registry of the engines that this machine can start."""

from dataclasses import dataclass
from pathlib import Path

from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.llamacpp_engine import LlamacppEngine
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.sglang.kind import SglangEngine
from windlass_agent.engines.vllm_engine import VllmEngine


@dataclass(frozen=True, kw_only=True)
class EnginePrograms:
    """Paths of engines that do not come with the agent; None for those that are not here."""

    vllm_python: Path | None = None
    """Python of an environment with vLLM."""
    vllm_flags: tuple[str, ...] = ()
    """Flags of the operator for vLLM, beside our own."""
    sglang_python: Path | None = None
    """Python of an environment with SGLang."""
    sglang_flags: tuple[str, ...] = ()
    """Flags of the operator for SGLang, beside our own."""
    llama_server: Path | None = None


NONE_BESIDE = EnginePrograms()
"""The built-in engine is all there is."""


def engines(programs: EnginePrograms = NONE_BESIDE) -> dict[str, EngineKind]:
    """The installed engines by name, the preferred one first; may take seconds."""
    known: list[EngineKind] = [BuiltinEngine()]
    # Engines start in folders of their own. A link is left as it is: it is how an environment
    # knows itself.
    if programs.vllm_python is not None:
        known.append(VllmEngine(programs.vllm_python.absolute(), programs.vllm_flags).updating())
    if programs.sglang_python is not None:
        known.append(SglangEngine(programs.sglang_python.absolute(), programs.sglang_flags))
    if programs.llama_server is not None:
        known.append(LlamacppEngine(programs.llama_server.absolute()))
    return {engine.name: engine for engine in known if engine.installed()}
