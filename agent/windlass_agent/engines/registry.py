"""Registry of the engines that this machine can start."""

from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.port import EngineKind

_KNOWN: tuple[EngineKind, ...] = (BuiltinEngine(),)


def engines() -> dict[str, EngineKind]:
    """The installed engines by name, the preferred one first."""
    return {engine.name: engine for engine in _KNOWN if engine.installed()}
