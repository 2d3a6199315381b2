"""Planning of the changes that serve the wanted models within the bounds; pure.

It imports the domain beside it, and the kernel.
"""

from windlass.inference.planning.changes import EngineChanges
from windlass.inference.planning.planner import Planner

__all__ = ["EngineChanges", "Planner"]
